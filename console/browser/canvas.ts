import type { Locator, Page } from 'playwright-core';
import { fleet, visitor, stage, withVisitor } from './stage';

/** What tests do on the canvas of a design. */

export const PASSWORD = 'cold-rooms-7';

/** A server on which everybody is who may have to do with designs, and a visitor. */
export function designers(): void {
  stage(async () => {
    for (const role of ['basicUser', 'administrator', 'developer']) await fleet.user(role.toLowerCase(), role);
  });
  withVisitor();
}

/** An element on the canvas. */
export const node = (page: Page, name: string): Locator => page.locator(`.svelte-flow__node[data-id="${name}"]`);
export const save = (page: Page): Locator => page.getByRole('button', { name: 'Save', exact: true });
export const saved = (page: Page): Promise<void> => page.getByText(/^Saved \d/).waitFor();
export const panel = (page: Page): Locator => page.getByRole('complementary', { name: 'Properties' });

/** Writes into an editor of code, in place of what is there. */
export async function write(page: Page, label: string, text: string): Promise<void> {
  await page.getByRole('textbox', { name: label, exact: true }).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text);
}

export async function centre(of: Locator): Promise<{ x: number; y: number }> {
  const box = await of.boundingBox();
  if (!box) throw new Error('it is not to be seen');
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

/** Draws a link from a trigger to an ability. */
export async function wire(page: Page, from: [string, string], to: [string, string]): Promise<void> {
  // What is not measured yet is hidden, and takes no link.
  for (const [name] of [from, to]) await node(page, name).waitFor();
  const start = await centre(node(page, from[0]).locator(`.source[data-handleid="${from[1]}"]`));
  const end = await centre(node(page, to[0]).locator(`.target[data-handleid="${to[1]}"]`));
  await page.mouse.move(start.x, start.y);
  await page.mouse.down();
  await page.mouse.move((start.x + end.x) / 2, (start.y + end.y) / 2, { steps: 6 });
  await page.mouse.move(end.x, end.y, { steps: 6 });
  await page.mouse.up();
}

export interface Specification {
  planes: {
    cloud: {
      elements: Record<
        string,
        { type: string; properties?: Record<string, unknown>; triggers?: Record<string, unknown[]> }
      >;
    };
  };
}
export async function elements(project: string): Promise<Specification['planes']['cloud']['elements']> {
  const { planes } = await fleet.call<Specification>('GET', `/projects/${project}/specification`);
  return planes.cloud.elements;
}

export async function open(page: Page, project: string, as?: string): Promise<void> {
  const path = `/projects/${project}/design`;
  await (as ? visitor.open(path, as, PASSWORD) : visitor.open(path));
  await page.getByRole('region', { name: 'Canvas' }).waitFor();
}
