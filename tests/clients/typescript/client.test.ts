// A client generated from the OpenAPI document, used as a customer would. What compiles here is the promise too.

import assert from "node:assert/strict";
import { test } from "node:test";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

type Device = components["schemas"]["Device"];
type ErrorBody = components["schemas"]["ErrorBody"];

const baseUrl = process.env["ISOBAR_URL"] ?? "";
const password = "wine-red-9";
const stranger = createClient<paths>({ baseUrl });

/** Signs a new developer up and in. */
async function developer(name: string) {
  const registered = await stranger.POST("/v2/auth/register", {
    body: {
      username: name, email: `${name}@types.example`, password, passwordConfirmation: password,
      firstName: "Typed", lastName: "Script", company: name, role: "developer",
    },
  });
  assert.equal(registered.response.status, 201);
  const session = await stranger.POST("/v2/auth/login", { body: { usernameOrEmail: name, password } });
  assert.ok(session.data, JSON.stringify(session.error));
  assert.ok(new Date(session.data.jwtTokenExpiry).getTime() > Date.now());
  return createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${session.data.jwtToken}` } });
}

const planes = {
  cloud: {
    elements: {
      reading: {
        type: "deviceEvent",
        triggers: { eventReceived: [{ element: "climate", ability: "store" }] },
      },
      climate: { type: "storage" },
      highest: { type: "deviceSetting", properties: { inputType: "number", defaultValue: 8 } },
    },
  },
};

test("a project, a device, its events, values and settings", async () => {
  const ana = await developer("tess");
  const me = await ana.GET("/v2/auth/user");
  assert.equal(me.data?.role, "developer");

  const project = await ana.POST("/v2/projects", { body: { name: "Fridges" } });
  assert.ok(project.data);
  const path = { params: { path: { id: project.data.id } } };
  const written = await ana.PUT("/v2/projects/{id}/specification", { ...path, body: { name: "Fridges", planes } });
  assert.equal(written.data?.createVersion, "2");

  const created = await ana.POST("/v2/devices", { body: { name: "Fridge 7", projectUuid: project.data.id } });
  assert.ok(created.data);
  const device: Device = created.data;
  const listed = await ana.GET("/v2/devices", { params: { query: { depth: "all", sortBy: ["-name"], limit: 10 } } });
  // The same operation gives CSV to those who ask for it: then it is a text.
  assert.ok(listed.data && typeof listed.data !== "string");
  assert.equal(listed.data.meta.totalDocs, 1);
  assert.deepEqual(listed.data.data.map(one => one.statusText), ["none"]);

  const itself = createClient<paths>({ baseUrl, headers: { cloud: created.data.token } });
  const posted = await itself.POST("/v2/events/device", {
    params: { query: { elementName: "reading" } }, body: { temp: 9.1, door: "open" },
  });
  assert.equal(posted.response.status, 201);
  const event = await ana.GET("/v2/devices/{deviceId}/events/{id}", {
    params: { path: { deviceId: device.id, id: posted.data?.id ?? "" } },
  });
  assert.equal(event.data?.type, "deviceEvent");

  const element = { id: device.id, elementName: "climate" };
  const values = await ana.GET("/v2/devices/{id}/data/{elementName}", { params: { path: element } });
  // The whole series may also come as a text: CSV or NDJSON.
  assert.ok(typeof values.data === "object");
  assert.deepEqual(values.data.data[0]?.payload, { temp: 9.1, door: "open" });
  const last = await ana.GET("/v2/devices/{id}/last/{elementName}", { params: { path: element } });
  assert.deepEqual(last.data?.values, { temp: 9.1, door: "open" });

  const setting = { params: { path: { id: device.id, settingName: "highest" } } };
  const changed = await ana.PUT("/v2/devices/{id}/settings/{settingName}", { ...setting, body: 7 });
  assert.equal(changed.data?.value, 7);
  assert.equal(changed.data?.inputType, "number");
  const history = await ana.GET("/v2/devices/{id}/settings/history", { params: { path: { id: device.id } } });
  assert.equal(history.response.status, 200);

  const queued = await ana.POST("/v2/events/cloud", {
    params: { query: { deviceId: device.id, elementName: "climate" } }, body: { on: true },
  });
  assert.equal(queued.response.status, 201);
  const next = await itself.GET("/v2/events/cloud/next");
  assert.deepEqual(next.data, { on: true });
  const none = await itself.GET("/v2/events/cloud/next");
  assert.equal(none.response.status, 204);
});

const png =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/** How a body of text goes out: as it is. */
const asText = { headers: { "Content-Type": "text/plain" }, bodySerializer: (text: string) => text };

test("images go up and come back", async () => {
  const ana = await developer("tilda");
  const project = await ana.POST("/v2/projects", { body: { name: "Fridges" } });
  const device = await ana.POST("/v2/devices", { body: { name: "Fridge", projectUuid: project.data?.id ?? "" } });
  const path = { params: { path: { id: device.data?.id ?? "" } } };
  const posted = `data:image/png;base64,${png}`;
  const set = await ana.POST("/v2/devices/{id}/image", { ...path, ...asText, body: posted });
  assert.equal(set.response.status, 204);
  const back = await ana.GET("/v2/devices/{id}/image", { ...path, parseAs: "text" });
  assert.equal(back.data, posted);
  const shown = await ana.GET("/v2/devices/{id}/image.png", { ...path, parseAs: "arrayBuffer" });
  assert.equal(shown.response.headers.get("content-type"), "image/png");
  assert.ok(shown.data);
  assert.deepEqual(Buffer.from(shown.data).subarray(0, 8), Buffer.from(png, "base64").subarray(0, 8));

  const me = await ana.GET("/v2/auth/user");
  const own = { params: { path: { id: me.data?.id ?? "" } } };
  const done = await ana.POST("/v2/users/{id}/image", { ...own, ...asText, body: png });
  assert.deepEqual(done.data?.errors, []);
  const refused = await ana.POST("/v2/users/{id}/image", { ...own, ...asText, body: "no image" });
  assert.equal(refused.error?.errors[0]?.field, "body");
});

test("a series is exported, and events are followed as they come", async () => {
  const ana = await developer("tom");
  const project = await ana.POST("/v2/projects", { body: { name: "Fridges" } });
  const device = await ana.POST("/v2/devices", { body: { name: "Fridge", projectUuid: project.data?.id ?? "" } });
  assert.ok(device.data);
  const itself = createClient<paths>({ baseUrl, headers: { cloud: device.data.token } });
  const post = (body: Record<string, unknown>) =>
    itself.POST("/v2/events/device", { params: { query: { elementName: "climate" } }, body });

  const stream = await ana.GET("/v2/events/stream", {
    params: { query: { deviceId: device.data.id } }, parseAs: "stream",
  });
  assert.equal(stream.response.headers.get("content-type"), "text/event-stream");
  assert.ok(stream.data);
  const posted = await post({ n: 0 });
  let heard = "";
  const reader = stream.data.pipeThrough(new TextDecoderStream()).getReader();
  while (!heard.includes("data: ") || !heard.endsWith("\n\n")) {
    const piece = await reader.read();
    assert.ok(!piece.done, heard);
    heard += piece.value;
  }
  await reader.cancel();
  const data = heard.split("\n").find(line => line.startsWith("data: ")) ?? "";
  const event: components["schemas"]["Event"] = JSON.parse(data.slice("data: ".length));
  assert.equal(event.id, posted.data?.id);
  assert.deepEqual(event.payload, { n: 0 });

  await post({ n: 1 });
  const csv = await ana.GET("/v2/devices/{id}/data/{elementName}", {
    params: {
      path: { id: device.data.id, elementName: "climate" },
      query: { columns: ["payload.n"], sortBy: ["createdAt"] },
    },
    headers: { Accept: "text/csv" },
    parseAs: "text",
  });
  assert.equal(csv.data, "payload.n\r\n0\r\n1\r\n");
});

test("notifications", async () => {
  const ben = await developer("theo");
  const listed = await ben.GET("/v2/notifications", { params: { query: { unread: true } } });
  assert.ok(listed.data);
  for (const notification of listed.data.data) {
    const marked = await ben.PUT("/v2/notifications/{id}", {
      params: { path: { id: notification.id } }, body: { read: true },
    });
    assert.deepEqual(marked.data?.errors, []);
  }
  const ended = await ben.DELETE("/v2/notifications", { params: { query: { to: "2100-01-01T00:00:00.000Z" } } });
  assert.equal(ended.response.status, 200);
});

test("refusals have a type", async () => {
  const eve = await developer("toni");
  const refused = await eve.POST("/v2/devices", { body: { name: "", projectUuid: "nowhere" } });
  const error: ErrorBody | undefined = refused.error;
  assert.equal(refused.response.status, 400);
  assert.deepEqual(error?.errors.map(fault => fault.field).sort(), ["name", "projectUuid"]);
  const missing = await eve.GET("/v2/devices/{id}", { params: { path: { id: "nowhere" } } });
  assert.equal(missing.response.status, 404);
  assert.equal(typeof missing.error?.message, "string");
  const unknown = await stranger.GET("/v2/devices");
  assert.equal(unknown.response.status, 401);
  assert.deepEqual(unknown.error?.errors, []);
});
