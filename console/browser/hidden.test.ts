import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';
import { organization } from './tenants';

/** Names with signs that are not seen: each page shows these, whatever the name is of. */

/** Reads "Ha" and turns round what follows; the second one is of no width. */
const NAME = 'Ha\u202e lls\u200b';
const SHOWN = 'Ha⟨U+202E⟩ lls⟨U+200B⟩';
const HIDDEN = /[\u200b\u202e]/;

const to = (element: string): object => ({ element, ability: 'store' });

let project: string;
let device: string;
let user: string;

stage(async () => {
  await organization(fleet, NAME, fleet.organizationId, `About ${NAME}`);
  project = await fleet.project(NAME, {
    [`${NAME} in`]: { type: 'deviceEvent', triggers: { eventReceived: [to('other'), to(NAME)] } },
    [NAME]: { type: 'storage' },
    other: { type: 'storage' },
  });
  const made = await fleet.device(NAME, project, { meta: { label: NAME, [NAME]: 1, latitude: 47, longitude: 8 } });
  device = made.id;
  await fleet.event(made.token, { [NAME]: NAME }, `${NAME} in`);
  ({ id: user } = await fleet.user('hidden', 'developer'));
  const person = { firstName: NAME, lastName: NAME, company: NAME, role: 'developer' };
  await fleet.call('PUT', `/users/${user}`, person);
  await fleet.call('POST', `/users/${user}/apiKeys`, { name: NAME });
  const keys = [{ deviceId: device, deviceName: NAME, elementName: NAME, path: NAME }];
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, {
    name: NAME,
    options: { organizationId: fleet.organizationId },
    configuration: {
      widgets: [
        { id: 'a', type: 'text', title: NAME, x: 0, y: 0, w: 4, h: 2, settings: { text: NAME } },
        { id: 'b', type: 'value', title: '', x: 4, y: 0, w: 4, h: 2, settings: { keys } },
        { id: 'c', type: 'table', title: '', x: 0, y: 2, w: 8, h: 3, settings: { elementName: NAME, paths: [NAME] } },
      ],
    },
  });
});
withVisitor();

/** All that a page says: to those who look, to those who listen, and beside the pointer. */
const said = (page: Page): Promise<string[]> =>
  page.evaluate(() => [
    document.title,
    document.body.innerText,
    ...[...document.querySelectorAll('[title], [aria-label], [alt]')].flatMap((element) =>
      ['title', 'aria-label', 'alt'].map((name) => element.getAttribute(name) ?? ''),
    ),
  ]);

describe('a name with signs that hide', () => {
  it('is seen for what it is on every page', async () => {
    const { page } = visitor;
    await visitor.open('/');
    for (const path of [
      '/organizations',
      '/projects',
      `/projects/${project}/design`,
      '/devices',
      `/devices/${device}`,
      `/devices/${device}/events`,
      `/devices/${device}/data`,
      `/devices/${device}/charts`,
      '/users',
      `/users/${user}`,
      '/dashboards',
    ]) {
      await page.goto(path);
      await expect.poll(async () => (await said(page)).join('\n'), { message: path }).toContain(SHOWN);
      expect(
        (await said(page)).filter((text) => HIDDEN.test(text)),
        path,
      ).toEqual([]);
    }
  });

  it('is chosen as it is', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device}/data?element=other`);
    const read = page.waitForRequest((request) => decodeURIComponent(request.url()).includes(NAME));
    await page.getByLabel('Element').selectOption({ label: SHOWN });
    await read;
  });

  it('is edited as it is', async () => {
    const { page } = visitor;
    await visitor.open(`/users/${user}`);
    await page.getByRole('button', { name: 'Edit' }).click();
    await expect.poll(() => page.getByLabel('First name').inputValue()).toBe(NAME);
  });
});
