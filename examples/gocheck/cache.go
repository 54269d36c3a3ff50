package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/tools/go/gcexportdata"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// version is the version of the data that cachedChecker keeps for a package. Change the version together with the form of the data.
const version = "1"

// cachedChecker checks a package only if the package itself or the exports of one of its imports have changed. The output of its step is a digest of
// the package's exports. If only the body of a function changes, the digest stays the same. Then the packages that import the package are not checked
// again.
type cachedChecker struct {
	*checker
	memo  *kahn.Memo
	kept  store.DirCache // exports of packages, by digest
	mu    sync.Mutex     // guards the map `known`; held while a package is read from the cache, since this may change other packages in the map
	known map[string]*types.Package
}

func newCachedChecker(dir string) *cachedChecker {
	return &cachedChecker{
		checker: newChecker(), memo: &kahn.Memo{Cache: store.DirCache{Dir: filepath.Join(dir, "outputs")}},
		kept: store.DirCache{Dir: filepath.Join(dir, "exports")}, known: map[string]*types.Package{"unsafe": types.Unsafe},
	}
}

// The function `keeps` sets the fields Memo and MemoKey of a node, so that the Memo keeps the node's output.
func keeps(n *kahn.Node) { n.Memo, n.MemoKey = version, key }

// key returns a hash of everything that the check of a package depends on: the toolchain, the package's files, and the exports of its
// imports.
func key(s *kahn.Step) (string, error) {
	pkg := s.Config().(*goPackage)
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), os.Getenv("GOARCH"), runtime.GOARCH, pkg.ImportPath, pkg.goVersion())
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(pkg.Dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, len(text))
		h.Write(text)
	}
	for _, path := range pkg.Imports {
		digest, err := kahn.Upstream[string](s, path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, path, digest)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// check is the step of cachedChecker.
func (c *cachedChecker) check(ctx context.Context, s *kahn.Step) (any, error) {
	pkg := s.Config().(*goPackage)
	checked, err := c.checkWith(ctx, pkg, func(path string) (*types.Package, error) {
		digest, err := kahn.Upstream[string](s, path)
		if err != nil {
			return nil, err
		}
		return c.load(ctx, path, digest)
	})
	if err != nil {
		return nil, err
	}
	if checked == types.Unsafe {
		return "unsafe", nil
	}
	var text bytes.Buffer
	// Write the exports without the positions of the file set. Positions change with every comment, and only errors about the package itself need
	// them.
	if err := gcexportdata.Write(&text, token.NewFileSet(), checked); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text.Bytes())
	digest := hex.EncodeToString(sum[:])
	c.mu.Lock()
	c.known[pkg.ImportPath] = checked
	c.mu.Unlock()
	return digest, c.kept.Put(ctx, digest, text.Bytes())
}

// load returns a package that was checked in this run or in an earlier run. If c.known does not contain the complete package, load reads the data of
// the package from the cache. This data also contains parts of other packages, to which the package refers. load adds each of these other packages to
// c.known as an incomplete package, unless c.known already contains it.
func (c *cachedChecker) load(ctx context.Context, path, digest string) (*types.Package, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pkg := c.known[path]; pkg != nil && pkg.Complete() {
		return pkg, nil
	}
	text, ok, err := c.kept.Get(ctx, digest)
	if err == nil && !ok {
		err = errors.New("it is not there any more: remove the folder of the cache")
	}
	if err != nil {
		return nil, fmt.Errorf("what %s exports: %w", path, err)
	}
	return gcexportdata.Read(bytes.NewReader(text), c.fset, c.known, path)
}
