import type { Browser, Page } from 'playwright-core';
import { DESK, Visitor } from '../pages';
import { ADMIN } from '../server';
import { DEVICES, nameOf } from './fill';

/** A network as Chromium plays it: how many bytes pass in a second, and how long each request waits besides. */
interface Network {
  name: string;
  down: number;
  up: number;
  latency: number;
}

const BITS = 8;
/** What Lighthouse calls "slow 4G", and what is left of a cell at the edge of its reach. */
const NETWORKS: readonly Network[] = [
  { name: '1.6 Mbit/s, 150 ms', down: 1_600_000 / BITS, up: 750_000 / BITS, latency: 150 },
  { name: '400 kbit/s, 400 ms', down: 400_000 / BITS, up: 400_000 / BITS, latency: 400 },
];
const VISITS = 3;
const CLICK_SHOWN_MAX_MS = 100;
const SCROLLED_MS = 3_000;
const SCROLLED_PX = 200;

/** What is clicked, and what it must bring, in this order. */
interface Click {
  click: string;
  awaited: { selector: string; text: string }[];
}
interface Clicked {
  /** Milliseconds until the page said that something is under way; null where it did not. */
  busy: number | null;
  /** Milliseconds until each of what is awaited was painted. */
  painted: number[];
}

const FIELD = 'input[autocomplete="username"]';
const OVERVIEW: Click = {
  click: 'form button:not([type="button"])',
  awaited: [
    { selector: 'h1', text: 'Root' },
    { selector: '[data-mark]', text: '' },
  ],
};
const to = (path: string, selector: string, text: string): Click => ({
  click: `nav a[href="${path}"]`,
  awaited: [{ selector, text }],
});
const TABLE = to('/devices', '[role="row"] a, td a', nameOf(0));
const OTHERS = [
  to('/projects', 'h1', 'Projects'),
  to('/alarms', 'h1', 'Alarms'),
  to('/dashboards', 'h1', 'Cold chain'),
];

/** Prints how long a visitor waits behind slow networks, and how a long table scrolls behind a fast one. */
export async function overNetworks(browser: Browser, url: string, say: (text: string) => void): Promise<void> {
  const rows = [
    'sign-in page, nothing cached',
    'signed in: the overview',
    'its map',
    `table of ${DEVICES.toLocaleString('en-GB')} devices`,
  ];
  const all = [...rows, 'overview again, files cached', 'longest time until a click shows'];
  const columns: number[][] = [];
  for (const network of NETWORKS) {
    say(`${network.name}\n`);
    const visits: number[][] = [];
    for (let visit = 1; visit <= VISITS; visit += 1) visits.push(await visitOver(network, browser, url));
    columns.push(all.map((_, row) => middle(visits.map((visit) => visit[row] ?? Number.NaN))));
  }
  const lines = all.map(
    (name, row) => `| ${name} | ${columns.map((column) => `${round(column[row])} ms`).join(' | ')} |`,
  );
  const clicks = Math.max(...columns.map((column) => column.at(-1) ?? Number.NaN));
  say(`\n| wait | ${NETWORKS.map(({ name }) => name).join(' | ')} |\n|---|---:|---:|\n${lines.join('\n')}\n`);
  say(`A click shows within ${CLICK_SHOWN_MAX_MS} ms: ${clicks < CLICK_SHOWN_MAX_MS ? 'holds' : '**missed**'}.\n`);
  for (let visit = 1; visit <= VISITS; visit += 1) {
    const frames = await scrolled(browser, url);
    const mean = frames.reduce((sum, gap) => sum + gap, 0) / frames.length;
    const slow = frames.toSorted((one, other) => one - other)[Math.floor(frames.length * 0.95)];
    say(
      `Scrolling the table for ${SCROLLED_MS / 1_000} s: ${round(1_000 / mean)} frames/s, ` +
        `19 of 20 within ${round(slow)} ms, the longest ${round(Math.max(...frames))} ms.\n`,
    );
  }
}

async function visitOver({ down, up, latency }: Network, browser: Browser, url: string): Promise<number[]> {
  const visitor = await Visitor.comeFirst(browser, url, { ...DESK, reducedMotion: 'no-preference' });
  const { page, context } = visitor;
  const session = await context.newCDPSession(page);
  await session.send('Network.enable');
  const conditions = { offline: false, latency, downloadThroughput: down, uploadThroughput: up };
  await session.send('Network.emulateNetworkConditions', conditions);
  await page.goto('/', { waitUntil: 'commit' });
  const signIn = await since(page, FIELD);
  await page.getByLabel('Username or e-mail').fill(ADMIN.name);
  await page.getByLabel('Password', { exact: true }).fill(ADMIN.password);
  const overview = await page.evaluate(clicked, OVERVIEW);
  const table = await page.evaluate(clicked, TABLE);
  const others: Clicked[] = [];
  for (const other of OTHERS) others.push(await page.evaluate(clicked, other));
  await page.goto('/', { waitUntil: 'commit' });
  const again = await since(page, '[data-mark]');
  await visitor.leave();
  const busy = [table, ...others].map((one) => one.busy ?? Number.NaN);
  return [signIn, ...overview.painted, ...table.painted, again, Math.max(...busy)];
}

/** Returns the milliseconds since the page was asked for, once there is such an element. */
async function since(page: Page, selector: string): Promise<number> {
  const shown = await page.waitForFunction((of) => document.querySelector(of) && performance.now(), selector);
  return (await shown.jsonValue()) ?? Number.NaN;
}

/** Runs in the page. */
function clicked({ click, awaited }: Click): Promise<Clicked> {
  const began = performance.now();
  let busy: number | null = null;
  const observer = new MutationObserver(() => {
    if (document.body.ariaBusy === 'true') busy ??= performance.now() - began;
  });
  observer.observe(document.body, { attributes: true });
  document.querySelector<HTMLElement>(click)?.click();
  const painted: number[] = [];
  return new Promise((resolve) => {
    const look = (): void => {
      for (let next = awaited[painted.length]; next; next = awaited[painted.length]) {
        const { selector, text } = next;
        const all = [...document.querySelectorAll<HTMLElement>(selector)];
        if (!all.some((element) => element.textContent.includes(text))) break;
        painted.push(performance.now() - began);
      }
      if (painted.length < awaited.length) return void requestAnimationFrame(look);
      observer.disconnect();
      resolve({ busy, painted });
    };
    requestAnimationFrame(look);
  });
}

/** Returns the milliseconds between the frames of a table that is scrolled in each of them. */
async function scrolled(browser: Browser, url: string): Promise<number[]> {
  const visitor = await Visitor.comeFirst(browser, url, { ...DESK, reducedMotion: 'no-preference' });
  await visitor.open('/devices');
  const table = visitor.page.getByRole('table', { name: 'Devices' });
  await table.getByText(nameOf(0)).waitFor();
  const gaps = await table.evaluate(
    (element, { ms, px }) =>
      new Promise<number[]>((resolve) => {
        const found: number[] = [];
        const began = performance.now();
        let before = began;
        const step = (now: number): void => {
          found.push(now - before);
          before = now;
          element.scrollBy(0, px);
          if (now - began < ms) requestAnimationFrame(step);
          else resolve(found.slice(1));
        };
        requestAnimationFrame(step);
      }),
    { ms: SCROLLED_MS, px: SCROLLED_PX },
  );
  await visitor.leave();
  return gaps;
}

function middle(figures: number[]): number {
  return figures.sort((one, other) => one - other)[Math.floor(figures.length / 2)] ?? Number.NaN;
}

const round = (figure = Number.NaN): string => Math.round(figure).toLocaleString('en-GB');
