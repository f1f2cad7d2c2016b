import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { BrowserContextOptions } from 'playwright-core';
import { DESK, PHONE, type Visitor } from './pages';

/** Every page is seen in each of these: pictures for the eye, and what axe finds. */
export const LOOKS: Record<string, BrowserContextOptions> = {
  light: { ...DESK, colorScheme: 'light' },
  dark: { ...DESK, colorScheme: 'dark' },
  phone: { ...PHONE, colorScheme: 'light' },
};
const SHOTS = join(import.meta.dirname, 'shots');
const AXE = readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe has found, by page: told together, as one fault often stands on many. */
export type Found = Map<string, string[]>;

interface Violation {
  id: string;
  help: string;
  nodes: { html: string; failureSummary?: string }[];
}

/** Takes a picture, and asks axe. */
export async function see({ page }: Visitor, name: string, found: Found): Promise<void> {
  await mkdir(SHOTS, { recursive: true });
  // What appears, appears at once for axe: half faded text has half its contrast.
  await page.evaluate(() =>
    Promise.all(document.getAnimations().map((animation) => animation.finished.catch(() => undefined))),
  );
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
  // Evaluated by the debugger, which the content security policy does not bind.
  await page.evaluate(await AXE);
  const violations = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations;
  });
  const told = violations.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' | ')}`,
  );
  if (told.length > 0) found.set(name, told);
}
