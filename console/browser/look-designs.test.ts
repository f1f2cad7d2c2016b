import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, LOOKS, see } from './look';
import { Visitor } from './pages';
import { browser, fleet, server, stage } from './stage';

let project: string;
let empty: string;
const found: Found = new Map();

stage(async () => {
  project = await fleet.project('Cold chain');
  empty = await fleet.project('Weather stations', {});
  for (const name of ['Water meters', 'Gates and doors']) await fleet.project(name);
  const device = await fleet.device('Cold room A1', project);
  await fleet.event(device.token, { temperature: 21, humidity: 61, door: { open: false }, wrong: 1 });
});
beforeEach(() => found.clear());

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  it('projects and designs are free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open('/projects');
    await page.getByRole('link', { name: 'Cold chain' }).waitFor();
    await see(visitor, `${look}-projects`, found);
    await page.goto('/projects?new');
    await page.getByRole('button', { name: 'Create the project' }).waitFor();
    await see(visitor, `${look}-project-new`, found);
    await page.goto(`/projects/${empty}/design`);
    await page.getByText('The design is empty').waitFor();
    await see(visitor, `${look}-design-empty`, found);

    await page.goto(`/projects/${project}/design`);
    await page.locator('.svelte-flow__edge').first().waitFor({ state: 'attached' });
    await see(visitor, `${look}-design`, found);
    await page.locator('.svelte-flow__node[data-id="warm"]').click();
    const isPhone = look === 'phone';
    if (isPhone) await page.getByRole('button', { name: 'Properties' }).click();
    await page.getByRole('textbox', { name: 'Expression' }).waitFor();
    await see(visitor, `${look}-design-element`, found);
    await page.getByRole('textbox', { name: 'Expression' }).click();
    await page.keyboard.press('Control+a');
    await page.keyboard.insertText('temperature > (8');
    await page.getByText('1 fault').first().waitFor();
    await see(visitor, `${look}-design-fault`, found);
    await page.keyboard.press('Control+a');
    await page.keyboard.insertText('payload.temperature > 8');
    await page.getByText('1 fault').first().waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'cool send' }).click();
    await page.getByRole('textbox', { name: 'value' }).waitFor();
    await see(visitor, `${look}-design-link`, found);
    if (isPhone) await page.getByRole('button', { name: 'Elements', exact: true }).click();
    if (isPhone) await see(visitor, `${look}-design-palette`, found);
    if (isPhone) await page.getByRole('button', { name: 'Canvas' }).click();
    await page.getByRole('button', { name: 'JSON', exact: true }).first().click();
    await page.getByRole('textbox', { name: 'The design as JSON' }).waitFor();
    await see(visitor, `${look}-design-json`, found);
    await page.getByRole('button', { name: 'JSON', exact: true }).first().click();
    await page.getByRole('button', { name: 'Try it out' }).click();
    await page.getByLabel('Run as device').selectOption({ label: 'Cold room A1' });
    await page.getByLabel('Recorded event').locator('option').nth(1).waitFor({ state: 'attached' });
    await page.getByLabel('Recorded event').selectOption({ index: 1 });
    await page.getByRole('button', { name: 'Run' }).click();
    await page.getByRole('list', { name: 'Steps' }).waitFor();
    await see(visitor, `${look}-design-try`, found);

    // Somebody else saves, and so does this one.
    const stored = await fleet.call<{ name: string; planes: { cloud: { elements: Record<string, object> } } }>(
      'GET',
      `/projects/${project}/specification`,
    );
    const { elements } = stored.planes.cloud;
    await fleet.call('PUT', `/projects/${project}/specification`, {
      name: stored.name,
      planes: {
        cloud: { elements: { ...elements, [`beat ${look}`]: { type: 'interval', properties: { minutes: 5 } } } },
      },
    });
    await page.getByRole('button', { name: 'Close' }).click();
    await page.locator('.svelte-flow__pane').click({ position: { x: 5, y: 5 } });
    if (isPhone) await page.getByRole('button', { name: 'Properties' }).click();
    await page.getByLabel('Description (optional)').fill('Halls 1 and 2');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('has saved version').waitFor();
    await see(visitor, `${look}-design-conflict`, found);
    await page.getByRole('button', { name: 'Back to my work' }).click();
    await page.getByRole('link', { name: 'Versions' }).click();
    await page.getByRole('button', { name: 'Stay' }).waitFor();
    await see(visitor, `${look}-design-leave`, found);
    await page.getByRole('button', { name: 'Leave', exact: true }).click();
    await page.getByRole('list', { name: 'What differs' }).waitFor();
    await page.getByText('Line by line').click();
    await see(visitor, `${look}-versions`, found);
    await page.goto('/projects/none/design');
    await page.getByText('It was deleted').waitFor();
    await see(visitor, `${look}-project-gone`, found);
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 180_000);
});
