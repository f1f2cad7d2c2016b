import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';
import { organization } from './tenants';

/** Each is heard and falls silent again within the test: its project says so. */
const SILENT = 12;

const SILENCE = {
  reading: {
    type: 'deviceEvent',
    triggers: { eventReceived: [{ element: 'health', ability: 'setStatus', arguments: { status: 'payload.status' } }] },
  },
  health: { type: 'deviceMeta' },
};

stage(async () => {
  const project = await fleet.project('Cold chain', SILENCE);
  const site = await organization(fleet, 'Hamburg', fleet.organizationId);
  const burning = await fleet.device('Burning', project, {
    organizationId: site,
    meta: { latitude: 53.5, longitude: 10 },
  });
  await fleet.event(burning.token, { status: 'critical' });
  for (let index = 0; index < SILENT; index += 1) {
    const meta = { latitude: 53.5, longitude: 10 };
    const { token } = await fleet.device(`Silent ${index}`, project, { organizationId: site, meta });
    await fleet.event(token, { status: 'missing' });
  }
  const quiet = await organization(fleet, 'Altona', fleet.organizationId);
  const gone = await fleet.device('Gone', project, { organizationId: quiet });
  await fleet.event(gone.token, { status: 'missing' });
  await fleet.device('Never heard', project);
  const room = await fleet.device('Room', await fleet.project('Rooms'));
  await fleet.event(room.token, { temperature: 4 });
  const settings = { elementName: 'climate', paths: ['temperature'] };
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, {
    name: 'Board',
    options: { organizationId: fleet.organizationId },
    configuration: { widgets: [{ id: 'rooms', type: 'table', title: 'Rooms', x: 0, y: 0, w: 12, h: 6, settings }] },
  });
});
withVisitor();

describe('one that burns among many that are silent', () => {
  it('stands first, on the overview, on the map and with its organization', async () => {
    const { page } = visitor;
    await visitor.open('/');
    const first = page.getByRole('region', { name: 'Look here first' }).getByRole('listitem');
    await expect.poll(() => first.first().innerText()).toContain('Burning');
    await page.getByRole('button', { name: /^13 devices.*Critical/ }).waitFor();
    await page.goto('/organizations');
    const row = page
      .getByRole('listitem')
      .filter({ has: page.getByRole('link', { name: 'Hamburg' }) })
      .last();
    await row.getByText('Critical').waitFor();
    const links = page.getByRole('link', { name: /^(Hamburg|Altona)$/ });
    expect(await links.allInnerTexts()).toEqual(['Hamburg', 'Altona']);
    await page.goto('/organizations?q=a');
    await page.getByRole('link', { name: 'Altona' }).waitFor();
    expect(await links.allInnerTexts()).toEqual(['Hamburg', 'Altona']);
  });

  it('leaves a table of an element to the devices that have it', async () => {
    const { page } = visitor;
    await visitor.open('/dashboards');
    const rows = page.getByRole('region', { name: 'Rooms' }).getByRole('row');
    await rows.getByRole('link', { name: 'Room', exact: true }).waitFor();
    expect(await rows.count()).toBe(2);
  });

  it('is told apart from those that were never heard, to which their number leads', async () => {
    const { page } = visitor;
    await visitor.open('/');
    await page.getByRole('region', { name: 'Activity' }).getByRole('link', { name: 'Never active' }).click();
    await page.getByRole('link', { name: 'Never heard' }).waitFor();
  });
});
