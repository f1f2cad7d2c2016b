import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { BrowserContextOptions, Page } from 'playwright-core';
import { DESK, PHONE, type Visitor } from './pages';

/** Every page is seen in each of these, on a desk in light and in dark: what axe finds, and with `SHOTS=yes` pictures for the eye. */
export const LOOKS: Record<string, BrowserContextOptions> = {
  desk: { ...DESK, colorScheme: 'light' },
  phone: { ...PHONE, colorScheme: 'light' },
};
const SCHEMES = ['light', 'dark'] as const;
const SHOTS = join(import.meta.dirname, 'shots');
const TAKES_PICTURES = process.env.SHOTS === 'yes';
const AXE = readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe has found, by page: told together, as one fault often stands on many. */
export type Found = Map<string, string[]>;

interface Axe {
  getRules(tags: string[]): { ruleId: string; tags: string[] }[];
  run(options: object): Promise<{ violations: Violation[] }>;
}

interface Violation {
  id: string;
  help: string;
  nodes: { html: string; element?: Element }[];
}

/**
 * Asks axe, and takes pictures if they are asked for. What is called `desk-…` is seen as `light-…` and as `dark-…`, without opening it
 * again: the second time axe is asked for what colours can change.
 */
export async function see(visitor: Visitor, name: string, found: Found): Promise<void> {
  const { page } = visitor;
  if (!name.startsWith('desk-')) return look(page, name, found);
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    await look(page, name.replace('desk', colorScheme), found, colorScheme !== SCHEMES[0]);
  }
  await page.emulateMedia({ colorScheme: SCHEMES[0] });
}

async function look(page: Page, name: string, found: Found, isSeenBefore = false): Promise<void> {
  await page.evaluate(settled);
  if (TAKES_PICTURES) {
    await mkdir(SHOTS, { recursive: true });
    await page.screenshot({ path: join(SHOTS, `${name}.png`) });
  }
  // Evaluated by the debugger, which the content security policy does not bind.
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(await AXE);
  const violations = await page.evaluate(violationsOf, isSeenBefore);
  const told = violations.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' | ')}`,
  );
  if (told.length > 0) found.set(name, told);
}

/** Runs in the page, until it stands still: half faded text has half its contrast, and a picture that is not read yet is not seen. */
async function settled(): Promise<void> {
  const isRunning = ({ playState }: Animation): boolean => playState === 'running';
  // What appears may bring what appears after it.
  for (let running = document.getAnimations(); running.some(isRunning); running = document.getAnimations())
    await Promise.all(running.filter(isRunning).map((animation) => animation.finished.catch(() => undefined)));
  await Promise.all([...document.images].map((image) => image.decode().catch(() => undefined)));
  // A chart is drawn anew in the frame after its colours have changed.
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

/** Runs in the page: what axe finds there, be it of colours alone. */
async function violationsOf(isOfColours: boolean): Promise<Violation[]> {
  const { axe } = window as unknown as { axe: Axe };
  const colours = axe.getRules(['cat.color']).filter(({ tags }) => !tags.includes('wcag2aaa'));
  const runOnly = { type: 'rule', values: colours.map(({ ruleId }) => ruleId) };
  // Rules that axe asks only for whoever wants them.
  const rules = { 'target-size': { enabled: true }, 'landmark-unique': { enabled: true } };
  const how = { resultTypes: ['violations'], elementRef: true, ...(isOfColours ? { runOnly } : { rules }) };
  const isFloating = (element: Element | null): boolean =>
    element !== null &&
    (element.matches('.menu') ||
      ['fixed', 'sticky'].includes(getComputedStyle(element).position) ||
      isFloating(element.parentElement));
  /** Whether a bar or a menu lies over a part of it: that part is a scroll or a key away. */
  const isCovered = (element: Element): boolean => {
    const { left, top, right, bottom } = element.getBoundingClientRect();
    const [x0, x1, y0, y1] = [left + 0.1, right - 0.1, top + 0.1, bottom - 0.1];
    const corners = [x0, x1].flatMap((x) => [y0, y1].map((y) => [x, y] as const));
    const over = corners.map(([x, y]) => document.elementFromPoint(x, y));
    return over.some((one) => one && !one.contains(element) && !element.contains(one) && isFloating(one));
  };
  const places = (): string => {
    const targets = [...document.querySelectorAll('a, button, input, select, summary, textarea')];
    return JSON.stringify(targets.map((target) => target.getBoundingClientRect()));
  };
  // What moves while axe looks is measured at two places.
  let before = '';
  let violations: Violation[] = [];
  while (places() !== before) {
    before = places();
    ({ violations } = await axe.run(how));
  }
  return violations.flatMap(({ id, help, nodes }) => {
    const faulty = nodes.filter(({ element }) => id !== 'target-size' || !element || !isCovered(element));
    return faulty.length > 0 ? [{ id, help, nodes: faulty.map(({ html }) => ({ html })) }] : [];
  });
}
