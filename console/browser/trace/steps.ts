import type { Page } from 'playwright-core';
import { DEVICES, ELEMENTS, type Filled, nameOf } from './fill';
import type { Awaited } from './watch';

/** Something that a visitor does, and what comes of it. */
export interface Step {
  name: string;
  /** What is done before anything is measured. */
  prepare?: (page: Page) => Promise<unknown>;
  act: (page: Page) => Promise<unknown>;
  awaited: Awaited;
}

const DEVICE_LIST = '/v2/devices\\?';
const BUCKETS = '/buckets\\?';
const FLOOR = 42;
/** Where the list has its rows, in pixels. */
const ROW_PX = 46;

const shows = (answer: string, text: string, selector = 'a'): Awaited => ({
  answer,
  selector,
  text,
  isDrawn: false,
  count: 1,
});
const draws = (answer: string): Awaited => ({ ...shows(answer, '', '.uplot'), isDrawn: true });

/** Goes to an address as a click on a link does. */
const go = (path: string) => (page: Page) =>
  page.evaluate((to) => {
    const link = document.createElement('a');
    link.href = to;
    document.body.append(link);
    link.click();
    link.remove();
  }, path);

const scroll = (row: number) => (page: Page) =>
  page.getByRole('table', { name: 'Devices' }).evaluate((table, top) => table.scrollTo(0, top), row * ROW_PX);

async function zoom(page: Page): Promise<void> {
  const box = await page.locator('.u-over').boundingBox();
  if (!box) throw new Error('there is no plot');
  await page.mouse.move(box.x + box.width * 0.3, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 4 });
  await page.mouse.up();
}

async function describeFilter(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Add a filter' }).click();
  const editor = page.getByRole('dialog', { name: 'Add a filter' });
  await editor.getByLabel('What').selectOption({ label: 'Label …' });
  await editor.getByLabel('Name of the label').fill('floor');
  await editor.getByLabel('Compared with').fill(String(FLOOR));
}

const search = (page: Page): Promise<void> => page.getByRole('searchbox', { name: 'Search name' }).fill('Sensor 0123');

/** The steps of one visit, in their order. */
export function steps({ device, project }: Filled): Step[] {
  const chart = `/devices/${device}/charts?keys=climate%2Ftemperature&range=month&time=at&live=off`;
  const backwards = (place: number): string => nameOf(DEVICES - 1 - place);
  return [
    { name: 'devices: the first page', act: go('/devices'), awaited: shows(DEVICE_LIST, nameOf(0)) },
    {
      name: 'devices: another order',
      act: (page) => page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click(),
      awaited: shows(DEVICE_LIST, backwards(0)),
    },
    { name: 'devices: the next page', act: scroll(110), awaited: shows(DEVICE_LIST, backwards(112)) },
    { name: 'devices: the middle', act: scroll(DEVICES / 2), awaited: shows(DEVICE_LIST, backwards(DEVICES / 2)) },
    { name: 'devices: the end', act: scroll(DEVICES), awaited: shows(DEVICE_LIST, nameOf(0)) },
    { name: 'devices: searched', act: search, awaited: shows(DEVICE_LIST, nameOf(1_239)) },
    {
      name: 'devices: filtered by a label',
      prepare: async (page) => {
        await page.getByRole('searchbox', { name: 'Search name' }).fill('');
        await page.getByText('10,000 devices').waitFor();
        await describeFilter(page);
      },
      act: (page) => page.getByRole('button', { name: 'Filter', exact: true }).click(),
      awaited: shows(DEVICE_LIST, nameOf(DEVICES - 100 + FLOOR)),
    },
    { name: 'a chart of a million values', act: go(chart), awaited: draws(BUCKETS) },
    { name: 'the chart, zoomed', act: zoom, awaited: draws(BUCKETS) },
    { name: 'the chart, zoomed again', act: zoom, awaited: draws(BUCKETS) },
    {
      name: 'a design of 400 elements',
      act: go(`/projects/${project}/design`),
      awaited: { ...shows('/specification$', '', '.svelte-flow__node'), count: ELEMENTS },
    },
    { name: 'a dashboard', act: go('/dashboards'), awaited: draws(BUCKETS) },
  ];
}
