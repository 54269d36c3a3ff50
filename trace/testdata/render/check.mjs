// Reads pictures from the JSON file that the argument names, and renders them with Mermaid and Graphviz. Then it compares the rendered nodes,
// edges and groups with the expected ones.
import { readFileSync } from 'node:fs';
import assert from 'node:assert/strict';
import { instance } from '@viz-js/viz';
import { JSDOM } from 'jsdom';

const { window } = new JSDOM('');
globalThis.window = window; // mermaid needs the globals of a browser
globalThis.document = window.document;
const { default: mermaid } = await import('mermaid');
mermaid.initialize({ maxEdges: 1e6, maxTextSize: 1e9 });
const viz = await instance();

// Before it parses, Mermaid replaces character codes with placeholders. decoded replaces the placeholders with the characters.
const decoded = (text) => text.replace(/<br\s*\/?>/g, '\n').replace(/ﬂ°°(\d+)¶ß/g, (_, code) => String.fromCodePoint(code));

async function readMermaid(text) {
  assert.equal((await mermaid.parse(text)).diagramType, 'flowchart-v2');
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  return {
    nodes: Object.fromEntries([...db.getVertices()].map(([name, vertex]) => [name, decoded(vertex.text)])),
    edges: db.getEdges().map((edge) => [edge.start, edge.end, decoded(edge.text)]),
    groups: db.getSubGraphs().map((group) => [decoded(group.title), ...group.nodes.sort()]),
  };
}

// readDOT reads the texts from Graphviz's drawing of a picture. The drawing contains no-break spaces instead of spaces.
function readDOT(text) {
  const svg = new JSDOM(viz.renderString(text, { format: 'svg' }), { contentType: 'image/svg+xml' }).window.document;
  const title = (g) => g.querySelector('title').textContent;
  const lines = (g) => [...g.querySelectorAll('text')].map((line) => line.textContent.replaceAll('\u00a0', ' ')).join('\n');
  return {
    nodes: Object.fromEntries([...svg.querySelectorAll('g.node')].map((g) => [title(g), lines(g)])),
    edges: [...svg.querySelectorAll('g.edge')].map((g) => [...title(g).split('->'), lines(g)]),
    groups: [...svg.querySelectorAll('g.cluster')].map(lines),
  };
}

for (const picture of JSON.parse(readFileSync(process.argv[2]))) {
  const fromMermaid = await readMermaid(picture.mermaid);
  assert.deepEqual(fromMermaid, { nodes: picture.nodes, edges: picture.edges, groups: picture.groups }, `${picture.name} in Mermaid`);
  const fromDOT = readDOT(picture.dot);
  assert.deepEqual(fromDOT.nodes, picture.nodes, `${picture.name} in DOT`);
  assert.deepEqual(fromDOT.edges.sort(), picture.edges.sort(), `${picture.name} in DOT`);
  assert.deepEqual(fromDOT.groups, picture.groups.map((group) => group[0]), `${picture.name} in DOT`);
  console.log(`${picture.name}: ${Object.keys(picture.nodes).length} nodes and ${picture.edges.length} edges are shown as they should be`);
}
