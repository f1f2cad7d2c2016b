// Writes the conformance tests of the npm package @bufbuild/cel-spec, one a line: `node extract.mjs PACKAGE-FOLDER > conformance.ndjson`.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const source = readFileSync(join(process.argv[2], "dist/esm/testdata/conformance.js"), "utf8");
const { tests } = await import("data:text/javascript;base64," + Buffer.from(source).toString("base64"));
const write = (suite, path) => {
    // Beside the original case the package has trees and types that cel-go made of it; these are left out.
    for (const test of suite.tests ?? []) console.log(JSON.stringify({ section: path.join("/"), ...test.original }));
    for (const inner of suite.suites ?? []) write(inner, [...path, inner.name]);
};
write(tests, []);
