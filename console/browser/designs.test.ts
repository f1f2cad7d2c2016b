import { describe, expect, it } from 'vitest';
import { centre, designers, elements, node, open, panel, save, saved, wire, write } from './canvas';
import { fleet, takeAPhone, visitor } from './stage';

designers();

describe('projects', () => {
  it('are made from a template whose design works, found, renamed, and deleted only when their name was typed', async () => {
    const { page } = visitor;
    await visitor.open('/projects');
    await page.getByRole('button', { name: 'New project' }).first().click();
    await page.getByLabel('Name of the project').fill('Cold storage');
    await page.getByRole('radio', { name: /A cold room/ }).check();
    await page.getByRole('button', { name: 'Create the project' }).click();
    await node(page, 'tooWarm').waitFor();
    await page.getByText('Saved', { exact: true }).waitFor();
    const project = new URL(page.url()).pathname.split('/')[2] ?? '';
    const device = await fleet.device('Room 1', project);
    await fleet.event(device.token, { temperature: 9.5, door: false });
    const shown = await fleet.call<{ statusText: string }>('GET', `/devices/${device.id}`);
    expect(shown.statusText).toBe('critical');

    await page.getByRole('link', { name: 'Projects' }).first().click();
    await page.getByLabel('Search projects').fill('nothing like it');
    await page.getByText('No project matches this search').waitFor();
    await page.getByLabel('Search projects').fill('storage');
    await page.getByText('One project').waitFor();
    expect(await page.getByRole('link', { name: 'One device' }).getAttribute('href')).toBe(
      `/devices?filter[projectUuid][eq]=${project}`,
    );
    await page.getByRole('button', { name: 'More actions for Cold storage' }).click();
    await page.getByRole('menuitem', { name: 'Rename the project' }).click();
    await page.getByLabel('Name', { exact: true }).fill('Cold storage south');
    await save(page).click();
    await page.getByRole('link', { name: 'Cold storage south' }).waitFor();

    const remove = async (): Promise<void> => {
      await page.getByRole('button', { name: 'More actions for Cold storage south' }).click();
      await page.getByRole('menuitem', { name: 'Delete the project' }).click();
      await page.getByLabel(/Type/).fill('Cold storage south');
      await page.getByRole('button', { name: 'Delete', exact: true }).click();
    };
    await remove();
    await page.getByRole('alert').waitFor();
    await page.keyboard.press('Escape');
    await fleet.call('DELETE', `/devices/${device.id}`);
    await remove();
    await page.getByText('No project matches this search').waitFor();
  });

  it('each template is taken by the server as it is', async () => {
    const { page } = visitor;
    await visitor.open('/projects');
    for (const name of ['A sensor with an alarm', 'A meter']) {
      await page.goto('/projects?new');
      await page.getByLabel('Name of the project').fill(name);
      await page.getByRole('radio', { name }).check();
      await page.getByRole('button', { name: 'Create the project' }).click();
      await node(page, 'reading').waitFor();
    }
    await node(page, 'use').waitFor();
  });
});

describe('a design', () => {
  it('is built with the mouse, saved, and does what it says', async () => {
    const { page } = visitor;
    const project = await fleet.project('By mouse', {});
    await open(page, project);
    const canvas = page.getByRole('region', { name: 'Canvas' });
    await page.getByText('The design is empty').waitFor();
    await page.getByRole('button', { name: 'Add Device event' }).dragTo(canvas, { targetPosition: { x: 130, y: 150 } });
    await node(page, 'reading').waitFor();
    await page.getByRole('button', { name: 'Add Condition' }).dragTo(canvas, { targetPosition: { x: 400, y: 150 } });
    await page.getByRole('button', { name: 'Add Storage' }).dragTo(canvas, { targetPosition: { x: 400, y: 400 } });
    await wire(page, ['reading', 'eventReceived'], ['check', 'evaluate']);
    await page.getByText('It takes the incoming value').waitFor();
    await wire(page, ['check', 'true'], ['values', 'store']);
    // What is handed over is said on the link.
    await panel(page).getByRole('combobox', { name: 'Kind of value' }).selectOption('expression');
    await write(page, 'value', "{'warm': payload.temp}");
    await node(page, 'check').click();
    await write(page, 'Expression', 'payload.temp > 8');
    // What leads back fits nowhere.
    await wire(page, ['check', 'false'], ['check', 'evaluate']);
    await page.getByText('Unsaved changes').waitFor();
    await save(page).click();
    await saved(page);
    const device = await fleet.device('Fridge', project);
    await fleet.event(device.token, { temp: 9.1 });
    await fleet.event(device.token, { temp: 4 });
    const { data } = await fleet.call<{ data: { payload: unknown }[] }>('GET', `/devices/${device.id}/data/values`);
    expect(data.map(({ payload }) => payload)).toEqual([{ warm: 9.1 }]);
    expect(Object.values((await elements(project)).check?.triggers ?? {})).toHaveLength(1);
    // Where things stand is kept, for everybody.
    const before = await centre(node(page, 'values'));
    await page.reload();
    await node(page, 'values').waitFor();
    await page.getByText('Saved', { exact: true }).waitFor();
    const { values } = await elements(project);
    expect(values).toHaveProperty('position');
    expect(before.x).toBeGreaterThan(0);
  });

  it('is built with the keyboard alone', async () => {
    const { page } = visitor;
    const project = await fleet.project('By keys', {});
    await open(page, project);
    const press = async (...keys: string[]): Promise<void> => {
      for (const key of keys) await page.keyboard.press(key);
    };
    await page.getByRole('button', { name: 'Add Storage' }).focus();
    await press('Enter');
    await panel(page).getByLabel('Name').focus();
    await press('Control+a');
    await page.keyboard.type('climate');
    await press('Enter');
    await page.getByRole('button', { name: 'Add Device event' }).focus();
    await press('Enter');
    await panel(page).getByRole('combobox', { name: 'Link eventReceived to' }).focus();
    await page.keyboard.type('climate');
    await page.locator('.svelte-flow__edge').waitFor({ state: 'attached' });
    // Elements are chosen, moved, doubled and deleted with keys, and all of it can be taken back.
    await node(page, 'climate').focus();
    await press('Enter');
    await panel(page).getByRole('heading', { name: 'Storage' }).waitFor();
    const before = await centre(node(page, 'climate'));
    await press('ArrowDown', 'ArrowDown', 'ArrowDown');
    await expect.poll(async () => (await centre(node(page, 'climate'))).y).toBeGreaterThan(before.y);
    await press('Control+d');
    await node(page, 'climate2').waitFor();
    await node(page, 'climate2').focus();
    await press('Delete');
    await node(page, 'climate2').waitFor({ state: 'detached' });
    await node(page, 'climate').focus();
    await press('Enter', 'Control+c', 'Control+v');
    await node(page, 'climate2').waitFor();
    await press('Control+z');
    await node(page, 'climate2').waitFor({ state: 'detached' });
    await press('Control+Shift+z');
    await node(page, 'climate2').waitFor();
    await press('Control+z', 'Control+s');
    await saved(page);
    const device = await fleet.device('Fridge', project);
    await fleet.event(device.token, { temp: 9.1 });
    const { data } = await fleet.call<{ data: unknown[] }>('GET', `/devices/${device.id}/data/climate`);
    expect(data).toHaveLength(1);
    expect(Object.keys(await elements(project)).sort()).toEqual(['climate', 'reading']);
  });

  it('renames an element with all that speaks of it, and arranges itself', async () => {
    const { page } = visitor;
    const project = await fleet.project('Renamed', {
      limit: { type: 'deviceSetting', properties: { inputType: 'number', defaultValue: 8 } },
      reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'warm', ability: 'evaluate' }] } },
      warm: { type: 'condition', properties: { expression: 'payload.temp > settings.limit' } },
    });
    await open(page, project);
    await node(page, 'limit').click();
    await panel(page).getByLabel('Name').fill('warm');
    await page.getByText('There is a warm already').waitFor();
    await panel(page).getByLabel('Name').fill('upper limit');
    await page.keyboard.press('Enter');
    await node(page, 'warm').click();
    await page.getByRole('textbox', { name: 'Expression' }).getByText("settings['upper limit']").waitFor();
    await page.getByRole('button', { name: 'Arrange automatically' }).click();
    await save(page).click();
    await saved(page);
    const now = await elements(project);
    expect(now.warm?.properties?.expression).toBe("payload.temp > settings['upper limit']");
    expect(Object.values(now).every((element) => 'position' in element)).toBe(true);
  });

  it('shows the fault of an expression at its element as one types, and the server takes none of it', async () => {
    const { page } = visitor;
    const project = await fleet.project('Faulty', {
      reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'warm', ability: 'evaluate' }] } },
      warm: { type: 'condition', properties: { expression: 'true' } },
    });
    await open(page, project);
    await node(page, 'warm').click();
    await write(page, 'Expression', 'payload.temp > (8');
    const fault = panel(page).locator('.labelled .fault');
    await fault.getByText(/not closed|expected/i).waitFor();
    await write(page, 'Expression', 'temperature > 8');
    // Only the server knows that there is no such name.
    await fault.getByText(/temperature/).waitFor();
    await node(page, 'warm').getByRole('img').waitFor();
    await save(page).click();
    await page.getByText('The server refused this design').waitFor();
    expect((await elements(project)).warm?.properties?.expression).toBe('true');
    await page.getByRole('button', { name: 'Show the faults' }).click();
    await panel(page).getByRole('button', { name: /warm/ }).click();
    await write(page, 'Expression', 'payload.temp > 8');
    await node(page, 'warm').getByRole('img').waitFor({ state: 'detached' });
    await save(page).click();
    await saved(page);
  });

  it('of somebody who may not try it out is judged when it is saved', async () => {
    const { page } = visitor;
    const project = await fleet.project('Judged late', {
      warm: { type: 'condition', properties: { expression: 'true' } },
    });
    await open(page, project, 'administrator');
    expect(await page.getByRole('button', { name: 'Try it out' }).count()).toBe(0);
    await node(page, 'warm').click();
    await write(page, 'Expression', 'temperature > 8');
    await save(page).click();
    await node(page, 'warm').getByRole('img').waitFor();
    await panel(page)
      .locator('.labelled .fault')
      .getByText(/temperature/)
      .waitFor();
  });

  it('is JSON too, both ways; what cannot be shown leaves the canvas as it was, and is not lost', async () => {
    const { page } = visitor;
    const project = await fleet.project('As text', { values: { type: 'storage' } });
    await open(page, project);
    await page.getByRole('button', { name: 'JSON', exact: true }).click();
    const text = page.getByRole('textbox', { name: 'The design as JSON' });
    await text.getByText('"values"').waitFor();
    await page.getByRole('button', { name: 'Add Interval' }).click();
    await text.getByText('"every"').waitFor();
    const design = (more: string): string =>
      `{"name": "As text", "planes": {"cloud": {"elements": {"values": {"type": "storage"}${more}}}}}`;
    await write(page, 'The design as JSON', design(',\n"reading": {"type": "deviceEvent"}'));
    await node(page, 'reading').waitFor();
    await node(page, 'every').waitFor({ state: 'detached' });
    await write(page, 'The design as JSON', design(',\n"reading": {"type": "deviceEvent"}, "reading": 1'));
    await page
      .getByRole('alert')
      .getByText(/Line 2.*twice/s)
      .waitFor();
    expect(await node(page, 'reading').count()).toBe(1);
    expect(await save(page).isDisabled()).toBe(true);
    // Closed and opened again, and even after a reload, it stands as it was typed.
    await page.getByRole('button', { name: 'JSON', exact: true }).click();
    await page.getByText('the canvas is locked').waitFor();
    await page.reload();
    await page.getByRole('button', { name: 'Open the JSON' }).click();
    await text.getByText('"reading": 1').waitFor();
    await page.getByRole('button', { name: 'Discard this JSON' }).click();
    await save(page).click();
    await saved(page);
    expect(Object.keys(await elements(project))).toEqual(['values', 'reading']);
  });

  it('completes the keys that devices really send', async () => {
    const { page } = visitor;
    const project = await fleet.project('Completed', {
      reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'warm', ability: 'evaluate' }] } },
      warm: { type: 'condition', properties: { expression: 'true' } },
    });
    const device = await fleet.device('Sensor', project);
    await fleet.event(device.token, { temperature: 3, door: { open: true } });
    await open(page, project);
    await node(page, 'warm').click();
    await write(page, 'Expression', '');
    // The keys come from the server: before they are there, nothing is completed.
    const temperature = page.getByRole('option', { name: 'temperature' });
    await expect
      .poll(async () => {
        await page.keyboard.press('Escape');
        await page.keyboard.press('Control+a');
        await page.keyboard.type('payload.te');
        return temperature.waitFor({ timeout: 2_000 }).then(
          () => true,
          () => false,
        );
      })
      .toBe(true);
    // A list that has just opened takes no key, lest somebody types into it; a pointer it takes at once.
    await temperature.click();
    await page.getByRole('textbox', { name: 'Expression' }).getByText('payload.temperature').waitFor();
  });
});

describe('a decoder', () => {
  it('is written in JavaScript, which is completed and judged as one types, and decodes', async () => {
    const { page } = visitor;
    const project = await fleet.project('Decoded', {
      uplink: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'decode', ability: 'evaluate' }] } },
      decode: {
        type: 'function',
        properties: { code: 'function decodeUplink(input) { return { data: {} }; }', bytesRef: '$.bytes' },
        triggers: { result: [{ element: 'values', ability: 'store' }] },
      },
      values: { type: 'storage' },
    });
    await open(page, project);
    await node(page, 'decode').click();
    await write(page, 'Code', 'function decodeUplink(input) { return { data: { temp: ');
    await panel(page).getByText('The code does not run').first().waitFor();
    await page.keyboard.type('input.by');
    await page.getByRole('option', { name: 'bytes' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.insertText('tes[0] / 2 } }; }');
    await panel(page).getByText('The code does not run').first().waitFor({ state: 'detached' });
    await save(page).click();
    await saved(page);
    const device = await fleet.device('Meter', project);
    await fleet.event(device.token, { bytes: 'CQ==' }, 'uplink');
    const { data } = await fleet.call<{ data: { payload: unknown }[] }>('GET', `/devices/${device.id}/data/values`);
    expect(data.map(({ payload }) => payload)).toEqual([{ temp: 4.5 }]);
  });
});

describe('who may only look', () => {
  it('sees all of it, and can change nothing', async () => {
    const { page } = visitor;
    const project = await fleet.project('Looked at');
    await open(page, project, 'basicuser');
    await node(page, 'warm').click();
    await panel(page).getByRole('heading', { name: 'Condition' }).waitFor();
    await page.getByText('Read only').waitFor();
    for (const name of ['Save', 'Undo', 'Arrange automatically', 'Try it out', 'Add Storage', 'Delete', 'Duplicate']) {
      expect(await page.getByRole('button', { name }).count(), name).toBe(0);
    }
    expect(await panel(page).getByLabel('Name').getAttribute('readonly')).not.toBeNull();
    await node(page, 'warm').focus();
    await page.keyboard.press('Delete');
    expect(await node(page, 'warm').count()).toBe(1);
    await page.getByRole('link', { name: 'Versions' }).click();
    await page.getByRole('button', { name: /^1/ }).click();
    await page.getByRole('heading', { name: 'Version 1' }).waitFor();
    expect(await page.getByRole('button', { name: 'Restore' }).count()).toBe(0);
    await page.goto('/projects');
    await page.getByRole('link', { name: 'Looked at' }).waitFor();
    expect(await page.getByRole('button', { name: /New project|More actions/ }).count()).toBe(0);
  });
});

describe('on a phone', () => {
  it('the canvas pans, and all of the design can be read', async () => {
    await takeAPhone();
    const { page } = visitor;
    const project = await fleet.project('In the pocket');
    await open(page, project);
    await node(page, 'warm').waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBeLessThanOrEqual(390);
    const transform = (): Promise<string> =>
      page.locator('.svelte-flow__viewport').evaluate((element) => getComputedStyle(element).transform);
    const before = await transform();
    const box = await page.getByRole('region', { name: 'Canvas' }).boundingBox();
    const [x, y] = [(box?.x ?? 0) + 200, (box?.y ?? 0) + 30];
    const session = await page.context().newCDPSession(page);
    await session.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: [{ x, y }] });
    for (const by of [20, 60, 100]) {
      await session.send('Input.dispatchTouchEvent', { type: 'touchMove', touchPoints: [{ x: x - by, y: y + by }] });
    }
    await session.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
    await expect.poll(transform).not.toBe(before);
    await page.getByRole('button', { name: 'Show everything' }).tap();
    await node(page, 'warm').tap();
    await page.getByRole('button', { name: 'Properties' }).tap();
    await panel(page).getByRole('heading', { name: 'Condition' }).waitFor();
    await page.getByRole('button', { name: 'Canvas' }).tap();
    await page.getByRole('button', { name: 'JSON', exact: true }).first().tap();
    await page.getByRole('textbox', { name: 'The design as JSON' }).getByText('"reading"').first().waitFor();
  });
});
