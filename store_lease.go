package kahn

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// defaultLeaseTime is how long a lease lasts without the option LeaseTime.
const defaultLeaseTime = 30 * time.Second

// LeaseTime is how long the lease of a run lasts in its store. The run renews it when a third has passed. It is also how long a store
// may be out of reach until the run is left, and how long a run whose process has died cannot be acquired by another owner.
// Default: 30 s.
func LeaseTime(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("%w: LeaseTime(%v)", ErrBadOption, d)
		}
		c.leaseTime = d
		return nil
	})
}

// Owner is the name under which the run holds its lease. A host that gives each of its processes a name of its own, and the same one
// after a restart, finds its own leases again at once after a crash: an owner may acquire what it holds. Two processes with one
// name would take each other's runs away.
//
// Default: a name that nobody else has, of the host's name, the process, the boot of the machine, and a random part.
func Owner(name string) Option {
	return optionFunc(func(c *config) error {
		if name == "" {
			return fmt.Errorf("%w: Owner without a name", ErrBadOption)
		}
		c.owner = name
		return nil
	})
}

// machineAndProcess names this process for people who read a store.
var machineAndProcess = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("-") // not Linux: the random part makes the name unique
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.TrimSpace(string(boot)))
})

// leaseOwner is the owner of a lease that a run acquires.
func (c *config) leaseOwner() string {
	if c.owner != "" {
		return c.owner
	}
	return machineAndProcess() + "/" + uuid.NewString()
}
