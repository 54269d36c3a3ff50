import type { Graph } from "./api"

// prefixOf returns the prefix of the paths of a graph's nodes. Before the composite begins, the response does not contain
// the prefix.
export const prefixOf = (graph: Graph) => graph.prefix ?? (graph.inside ? graph.inside + "/" : "")

// isInside reports whether a path is in a composite.
export const isInside = (path: string, composite: string) => path.startsWith(composite) && "/[#".includes(path[composite.length] ?? "-")
