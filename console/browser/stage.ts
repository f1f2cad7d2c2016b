import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import { Fleet } from './fleet';
import { PHONE, Visitor, clear, launch } from './pages';
import { type Server, startServer } from './server';

// Each file of tests has these for itself; they change as its hooks run.
export let server: Server;
export let browser: Browser;
export let fleet: Fleet;
export let visitor: Visitor;

type Come = (browser: Browser, url: string) => Promise<Visitor>;

const PREPARED_WITHIN_MS = 240_000;
/** What a test polls for may come late on a busy machine, and is right all the same. Vitest's own second is no promise of anybody. */
const COMES_WITHIN_MS = 20_000;

/** One after the other, the files of a worker have the same browser, each with visitors of its own. */
let running: Browser | undefined;

async function inThisWorker(): Promise<Browser> {
  if (!running?.isConnected()) running = await launch();
  return running;
}

/** A server, with settings of its own, and a browser for the tests of a file. `prepare` makes what they look at. */
export function stage(
  prepare: () => Promise<void> = () => Promise.resolve(),
  settings: Record<string, string> = {},
): void {
  // Vitest takes it back after each file.
  vi.setConfig({ expect: { poll: { timeout: COMES_WITHIN_MS } } });
  beforeAll(async () => {
    [server, browser] = await Promise.all([startServer(settings), inThisWorker()]);
    fleet = await Fleet.of(server.url);
    await prepare();
  }, PREPARED_WITHIN_MS);
  afterAll(async () => {
    if (running) await clear(running);
    await server?.stop();
  });
}

/** A visitor for each test, whose pages must have been free of faults in the end. */
export function withVisitor(come: Come = (of, url) => Visitor.come(of, url)): void {
  beforeEach(async () => {
    visitor = await come(browser, server.url);
  });
  afterEach(async ({ task }) => {
    const shown = task.result?.state === 'fail' ? await visitor.shown() : null;
    await visitor.leave();
    // Whoever reads of a failure elsewhere cannot look at the page any more.
    // eslint-disable-next-line no-console
    if (shown !== null) console.error(`what the page showed: ${shown}`);
    expect(visitor.strays, 'requests that would have left this machine').toEqual([]);
    expect(visitor.faults, 'faults of the page').toEqual([]);
  });
}

/** Who came to the desk goes, and comes with a phone. */
export async function takeAPhone(): Promise<void> {
  await visitor.leave();
  visitor = await Visitor.come(browser, server.url, PHONE);
}
