// The page at /v2/docs shows every operation of the document. Its script runs here on as little of a browser as it needs.

import assert from "node:assert/strict";
import vm from "node:vm";

const base = process.env.ISOBAR_URL;
const page = await (await fetch(`${base}/v2/docs`)).text();
const spec = await (await fetch(`${base}/v2/spec`)).json();
const script = page.match(/<script>([\s\S]*)<\/script>/)[1];

class Node {
  constructor(name) { Object.assign(this, { name, children: [], attributes: {}, dataset: {} }); }
  setAttribute(key, value) { this.attributes[key] = value; }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  addEventListener() {}
  *all(name) {
    if (this.name === name) yield this;
    for (const child of this.children) if (child instanceof Node) yield* child.all(name);
  }
}

const named = {};
const byId = id => (named[id] ??= new Node("div"));
const asked = [];
const fetchHere = async url => {
  asked.push(url);
  return fetch(base + url);
};
const document = { createElement: name => new Node(name), getElementById: byId, querySelectorAll: () => [] };
vm.runInNewContext(script, { document, fetch: fetchHere, JSON, Object, Map, String });
for (let turns = 0; turns < 200 && byId("operations").children.length === 0; turns++) {
  await new Promise(done => setTimeout(done, 10));
}

const shown = [...byId("operations").all("details")].map(node => node.attributes.id).sort();
const said = Object.values(spec.paths).flatMap(item => Object.values(item)).map(one => one.operationId).sort();
assert.deepEqual(shown, said);
assert.deepEqual(asked, ["/v2/spec"]);
console.log(`docs: ${shown.length} operations are shown`);
