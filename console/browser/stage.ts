import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { Fleet } from './fleet';
import { PHONE, Visitor, launch } from './pages';
import { type Server, startServer } from './server';

// Each file of tests has these for itself; they change as its hooks run.
export let server: Server;
export let browser: Browser;
export let fleet: Fleet;
export let visitor: Visitor;

const PREPARED_WITHIN_MS = 240_000;

/** A server, with settings of its own, and a browser for the tests of a file. `prepare` makes what they look at. */
export function stage(
  prepare: () => Promise<void> = () => Promise.resolve(),
  settings: Record<string, string> = {},
): void {
  beforeAll(async () => {
    server = await startServer(settings);
    browser = await launch();
    fleet = await Fleet.of(server.url);
    await prepare();
  }, PREPARED_WITHIN_MS);
  afterAll(async () => {
    await browser?.close();
    await server?.stop();
  });
}

/** A visitor for each test, whose pages must have been free of faults in the end. */
export function withVisitor(): void {
  beforeEach(async () => {
    visitor = await Visitor.come(browser, server.url);
  });
  afterEach(async () => {
    await visitor.leave();
    expect(visitor.strays, 'requests that would have left this machine').toEqual([]);
    expect(visitor.faults, 'faults of the page').toEqual([]);
  });
}

/** Who came to the desk goes, and comes with a phone. */
export async function takeAPhone(): Promise<void> {
  await visitor.leave();
  visitor = await Visitor.come(browser, server.url, PHONE);
}
