package sqlite

import "github.com/seed-c794f7ef/kahn/store"

// The following constants and functions have the statements whose plans TestQueryPlans checks.

const NodesPage = nodesPage

func ListQuery(q *store.Query) (text string, values []any, err error) {
	text, list, err := listQuery(q, store.DefaultPage)
	return text, anys(list), err
}

func RecentQuery(q *store.Query) (text string, values []any, err error) {
	text, list, err := recentQuery(q, store.DefaultPage)
	return text, anys(list), err
}

func CountQuery(f *store.Filter) string {
	c := conditionOf(f)
	return countQuery(&c)
}

func PruneQuery(s *Store, q *store.PruneQuery) (text string, values []any) {
	text, list := s.pruneQuery(q, pruneBatch)
	return text, anys(list)
}

const DueQuery, KeyLeases, AllKeys = dueQuery, keyLeases, allKeys

func PartsQuery(s *Store) string { return sqlAt(partsQuery, s.now) }

func QueuesQuery(s *Store) string { return sqlAt(queuesQuery, s.now) }

func DeadQuery(s *Store) string { return sqlAt(deadQuery, s.now) }
