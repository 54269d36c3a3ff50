// Package schedule computes when recurring runs begin: the times of a cron expression in a time zone ([Cron]), or of an interval ([Every]).
package schedule
