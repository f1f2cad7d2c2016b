import type { Browser } from 'playwright-core';
import { Fleet } from '../fleet';
import { DESK, Visitor, launch } from '../pages';
import { startServer } from '../server';
import { DEVICES, ELEMENTS, type Filled, VALUES, fill } from './fill';
import { overNetworks } from './network';
import { type Step, steps } from './steps';
import { type Timing, begin, longestTask, picture, takeNotes } from './watch';

/** Each visit begins with an empty cache. */
const VISITS = 3;
/** What comes after the picture is looked at for so long. */
const AFTERWARDS_MS = 1_500;
const PICTURE_MAX_MS = 100;
const TASK_MAX_MS = 200;
/** Shorter tasks are not told by the browser. */
const TASK_MIN_MS = 50;

interface Measured extends Timing {
  task: number;
}

/** Fills a program, opens it in a browser, and prints how long each step took; or how long one waits behind slow networks. */
export async function trace(isOverNetworks: boolean): Promise<void> {
  const values = isOverNetworks ? '' : `, ${VALUES} values of one series`;
  say(`filling: ${DEVICES} devices${values}, a design of ${ELEMENTS} elements\n`);
  const server = await startServer({ ISOBAR_RATE_LIMIT__USER: '0' });
  const browser = await launch();
  try {
    const filled = await fill(await Fleet.of(server.url), !isOverNetworks);
    if (isOverNetworks) return await overNetworks(browser, server.url, say);
    const measured = new Map<string, Measured[]>();
    for (let visit = 1; visit <= VISITS; visit += 1) {
      say(`visit ${visit} of ${VISITS}\n`);
      await visitOnce(browser, server.url, filled, measured);
    }
    say(table(measured));
  } finally {
    await browser.close();
    await server.stop();
  }
}

async function visitOnce(browser: Browser, url: string, filled: Filled, all: Map<string, Measured[]>): Promise<void> {
  const visitor = await Visitor.comeFirst(browser, url, { ...DESK, reducedMotion: 'no-preference' });
  await visitor.page.addInitScript(takeNotes);
  await visitor.page.goto('/profile');
  await visitor.signIn();
  for (const step of steps(filled)) {
    all.set(step.name, [...(all.get(step.name) ?? []), await measure(visitor, step)]);
  }
  await visitor.leave();
  if (visitor.faults.length > 0) throw new Error(visitor.faults.join('\n'));
}

async function measure({ page }: Visitor, { prepare, act, awaited }: Step): Promise<Measured> {
  await prepare?.(page);
  await page.waitForTimeout(AFTERWARDS_MS);
  await page.evaluate(begin);
  const [timing] = await Promise.all([page.evaluate(picture, awaited), act(page)]);
  await page.waitForTimeout(AFTERWARDS_MS);
  return { ...timing, task: await page.evaluate(longestTask) };
}

function table(measured: Map<string, Measured[]>): string {
  const rows = [...measured].map(([name, visits]) => {
    const [shown, whole] = [median(visits.map((visit) => visit.picture)), median(visits.map((visit) => visit.whole))];
    const task = Math.max(...visits.map((visit) => visit.task));
    const isHeld = shown < PICTURE_MAX_MS && task < TASK_MAX_MS;
    const told = task < TASK_MIN_MS ? `< ${TASK_MIN_MS} ms` : ms(task);
    const later = whole - shown >= 1 ? `, all of it ${ms(whole)}` : '';
    return `| ${name} | ${ms(shown)}${later} | ${told} | ${isHeld ? 'holds' : '**missed**'} |`;
  });
  const head = `| step | from the answer to the picture | longest task | picture < ${PICTURE_MAX_MS} ms, tasks < ${TASK_MAX_MS} ms |`;
  return `\n${[head, '|---|---:|---:|---|', ...rows].join('\n')}\n`;
}

function median(figures: number[]): number {
  return figures.sort((one, other) => one - other)[Math.floor(figures.length / 2)] ?? 0;
}

const ms = (figure: number): string => `${Math.round(figure)} ms`;

function say(text: string): void {
  process.stdout.write(text);
}
