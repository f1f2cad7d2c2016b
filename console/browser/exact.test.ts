import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';

/** Readings are stored, and labels are set by events. */
const DESIGN = {
  reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'meter', ability: 'store' }] } },
  meter: { type: 'storage' },
  label: {
    type: 'deviceEvent',
    triggers: {
      eventReceived: [
        { element: 'labels', ability: 'setValue', arguments: { tag: 'payload.tag', value: 'payload.value' } },
      ],
    },
  },
  labels: { type: 'deviceMeta' },
  limit: { type: 'deviceSetting', properties: { inputType: 'number', title: 'Limit', defaultValue: 8 } },
};
const ENERGY = '9007199254740571124';
const SERIAL = '9007199254740826123';
const READING = `{"energy":${ENERGY},"share":1.0,"counts":[${SERIAL}]}`;

let project: string;
let device: { id: string; token: string };

async function says(element: string, payload: string): Promise<void> {
  // The device's token counts before the person's.
  const headers = { cloud: device.token };
  await fleet.text('POST', `/events/device?elementName=${element}`, payload, headers);
}

stage(async () => {
  project = await fleet.project('Meters', DESIGN);
  device = await fleet.device('Meter', project);
  await fleet.text('PATCH', `/devices/${device.id}/meta`, `{"serial":${SERIAL},"factor":1.0}`);
  await says('reading', READING);
});
withVisitor();

describe('numbers', () => {
  it('of labels, last values and events are shown to the digit', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    const values = page.getByRole('region', { name: 'Last values' });
    await values.getByText(ENERGY, { exact: true }).waitFor();
    await values.getByText('1.0', { exact: true }).waitFor();
    const labels = page.getByRole('region', { name: 'Labels' });
    await labels.getByText(SERIAL, { exact: true }).waitFor();
    await labels.getByText('1.0', { exact: true }).waitFor();
    const event = page.locator('[data-event]').first();
    await event.locator('summary').getByText(READING, { exact: true }).waitFor();
    await event.locator('summary').first().click();
    await event.getByText(ENERGY, { exact: true }).waitFor();
    await event.getByText(SERIAL, { exact: true }).waitFor();
  });

  it('of a chart are told to the digit where one stands alone', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/charts?keys=meter%2Fenergy&range=hour`);
    await page.getByText(ENERGY, { exact: true }).first().waitFor();
  });

  it('of stored values are shown to the digit, live ones too', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/data`);
    await page.getByRole('cell', { name: ENERGY }).waitFor();
    await page.getByRole('cell', { name: '1.0', exact: true }).waitFor();
    await page.goto(`/devices/${device.id}/events`);
    await page.getByText('Live', { exact: true }).first().waitFor();
    const live = '9007199254740571126';
    await says('reading', `{"energy":${live},"share":2.0}`);
    await page.getByText(`{"energy":${live},"share":2.0}`).waitFor();
    // What is searched is what was sent.
    await page.getByLabel('Filter by element or content').fill(live);
    await expect.poll(() => page.locator('[data-event]').count()).toBe(1);
  });

  it('of a setting are sent as they were typed', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/settings`);
    const field = page.getByLabel('Limit');
    await field.fill(SERIAL);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Back to the default' }).waitFor();
    expect(await fleet.text('GET', `/devices/${device.id}/settings/limit`)).toContain(`"value":${SERIAL}`);
    expect(await field.inputValue()).toBe(SERIAL);
  });

  it('that one sends to a device go as they were typed', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/queue`);
    await page.getByLabel('Element').fill('order');
    await page.getByLabel('Payload (JSON)').fill(`{"n":${SERIAL},"share":1.0}`);
    await page.getByRole('button', { name: 'Send to the device' }).click();
    await page.getByText(SERIAL).first().waitFor();
    const waiting = await fleet.text('GET', `/events/cloud?deviceId=${device.id}&peek=true`);
    expect(waiting).toContain(`"payload":{"n":${SERIAL},"share":1.0}`);
  });
});

describe('a place', () => {
  it('leaves other labels as they are, those too that the design sets meanwhile', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    const card = page.getByRole('region', { name: 'Place', exact: true });
    await card.getByRole('button', { name: 'Set' }).click();
    const dialog = page.getByRole('dialog', { name: 'Place' });
    await dialog.getByLabel('Latitude').fill('52.52');
    await dialog.getByLabel('Longitude').fill('13.405');
    await says('label', '{"tag":"mode","value":"night"}');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await card.getByText('13.405°').waitFor();
    const known = await fleet.text('GET', `/devices/${device.id}`);
    expect(known).toContain(
      `"meta":{"serial":${SERIAL},"factor":1.0,"mode":"night","latitude":52.52,"longitude":13.405}`,
    );
  });
});

describe('a browser whose clock is wrong', () => {
  it.each([20, -20])('by %s minutes renews its token as seldom as any other', async (minutes) => {
    const { page } = visitor;
    await page.addInitScript((off) => {
      const now = Date.now.bind(Date);
      Date.now = () => now() + off;
    }, minutes * 60_000);
    const renewals: string[] = [];
    page.on('request', (request) => {
      if (request.url().endsWith('/v2/auth/refreshToken')) renewals.push(request.url());
    });
    await visitor.open('/devices');
    await page.getByText('Meter', { exact: true }).first().waitFor();
    const before = renewals.length;
    await page.getByRole('link', { name: 'Projects' }).first().click();
    await page.getByText('Meters', { exact: true }).first().waitFor();
    expect(renewals.length).toBe(before);
    expect(before).toBeLessThan(3);
  });
});
