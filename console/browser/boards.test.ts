import type { Locator } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { fleet, stage, takeAPhone, visitor, withVisitor } from './stage';

/** Dashboards, arranged by hand. */

stage(async () => {
  await fleet.project('Cold chain');
});
withVisitor();

const text = (id: string, x: number): object => {
  return { id, type: 'text', title: id, x, y: 0, w: 4, h: 2, settings: { text: `about ${id}` } };
};
beforeEach(async () => {
  const widgets = [text('First', 0), text('Second', 4), text('Third', 8)];
  const options = { organizationId: fleet.organizationId };
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, {
    name: 'Board',
    options,
    configuration: { widgets },
  });
  const { page } = visitor;
  await visitor.open('/dashboards');
  await page.getByRole('button', { name: 'Arrange' }).click();
});

const widget = (name: string): Locator => visitor.page.getByRole('region', { name });
async function boxOf(of: Locator): Promise<{ x: number; y: number; width: number; height: number }> {
  const box = await of.boundingBox();
  if (!box) throw new Error('it is not to be seen');
  return box;
}
const corners = (): Promise<number[][]> =>
  Promise.all(
    ['First', 'Second', 'Third'].map(async (name) => {
      const { x, y, width, height } = await boxOf(widget(name));
      return [x, y, width, height].map(Math.round);
    }),
  );

describe('the widgets of a dashboard', () => {
  it('come back where they were when a drag is called off', async () => {
    const { page } = visitor;
    const before = await corners();
    for (const handle of [/^Move First/, /^Size First/]) {
      const { x, y } = await boxOf(page.getByRole('button', { name: handle }));
      await page.mouse.move(x + 8, y + 8);
      await page.mouse.down();
      await page.mouse.move(x + 500, y + 250, { steps: 8 });
      await expect.poll(corners).not.toEqual(before);
      await page.keyboard.press('Escape');
      await expect.poll(corners).toEqual(before);
      // The button of the mouse is still down: nothing is in its hand any more.
      await page.mouse.move(x + 20, y + 400, { steps: 4 });
      await page.mouse.up();
      expect(await corners()).toEqual(before);
    }
  });

  it('are sized by the mouse, and one that is moved onto another takes its place', async () => {
    const { page } = visitor;
    const first = await boxOf(widget('First'));
    const size = await boxOf(page.getByRole('button', { name: /^Size First/ }));
    await page.mouse.move(size.x + 8, size.y + 8);
    await page.mouse.down();
    await page.mouse.move(size.x + 8, size.y + 120, { steps: 8 });
    await page.mouse.up();
    await expect.poll(async () => (await boxOf(widget('First'))).height).toBeGreaterThan(first.height + 60);
    const third = await boxOf(page.getByRole('button', { name: /^Move Third/ }));
    await page.mouse.move(third.x + 8, third.y + 8);
    await page.mouse.down();
    await page.mouse.move(first.x + 30, first.y + 20, { steps: 12 });
    await page.mouse.up();
    await expect.poll(async () => Math.round((await boxOf(widget('Third'))).x)).toBe(Math.round(first.x));
    expect((await boxOf(widget('First'))).y).toBeGreaterThan((await boxOf(widget('Third'))).y);
  });

  it('are removed one after the other without the mouse', async () => {
    const { page } = visitor;
    await page.getByRole('button', { name: 'Remove Second' }).focus();
    for (const next of ['Remove Third', 'Remove First']) {
      await page.keyboard.press('Enter');
      await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe(next);
    }
  });

  it('are set up and removed on a phone, and what needs a wider screen is said and not offered', async () => {
    await takeAPhone();
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).tap();
    await page.getByText('where they stand and how large they are is set on a wider screen').waitFor();
    expect(await page.getByText('size them at their corner').isVisible()).toBe(false);
    for (const name of [/^Move First/, /^Size First/]) expect(await page.getByRole('button', { name }).count()).toBe(0);
    await page.getByRole('button', { name: 'Remove Second' }).tap();
    await page.getByRole('button', { name: 'Change First' }).tap();
    await page.getByRole('dialog').getByLabel('Title (optional)').fill('First of all');
    await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).tap();
    await page.getByRole('button', { name: 'Save' }).tap();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    const path = `/organizations/${fleet.organizationId}/dashboard`;
    const { configuration } = await fleet.call<{ configuration: { widgets: object[] } }>('GET', path);
    expect(configuration.widgets).toEqual([
      expect.objectContaining({ title: 'First of all', x: 0, y: 0, w: 4, h: 2 }),
      expect.objectContaining({ title: 'Third', x: 8, y: 0, w: 4, h: 2 }),
    ]);
  });
});
