import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { fleet, visitor, stage, withVisitor } from './stage';

stage(async () => {
  await fleet.project('Cold chain');
  await fleet.project('Doors');
});
withVisitor();

const file = (lines: readonly string[]) => ({
  name: 'fridges.csv',
  mimeType: 'text/csv',
  buffer: Buffer.from(lines.join('\r\n')),
});

describe('devices from a file', () => {
  it('are checked line by line, made with progress, and their tokens saved once', async () => {
    const { page } = visitor;
    await visitor.open('/devices/import');
    await page.getByText('Drop a CSV file here').waitFor();
    await page
      .locator('input[type=file]')
      .setInputFiles(
        file([
          'Name;Project;Floor;Serial;Lat;Lon',
          'Fridge 1;Cold chain;3;0012;52,5;13,4',
          ';Cold chain;3;0013;;',
          'Fridge 3;Warm chain;4;0014;;',
          `${'x'.repeat(81)};doors;4;0015;;`,
          'Door 5;doors;4;0016;;',
        ]),
      );
    await page.getByText('fridges.csv: 5 lines').waitFor();
    await page.getByText('2 lines have faults').waitFor();
    await page.getByRole('cell', { name: 'There is no project “Warm chain”.' }).waitFor();
    await page.getByRole('cell', { name: 'The name is missing.' }).waitFor();
    expect(await page.getByLabel('What Serial becomes').inputValue()).toBe('label');
    await page.getByRole('button', { name: 'Check the lines' }).click();
    // What only the server knows: names have 80 characters at most.
    await page.getByText('3 lines have faults').waitFor();
    await page.getByText('2 of 5 lines can become devices.').waitFor();
    const row = page.getByRole('row').filter({ hasText: 'xxxxx' });
    // However long the name is, what is wrong with it is in view.
    const [told, table] = [
      await row.getByRole('cell').last().boundingBox(),
      await page.locator('.faults').boundingBox(),
    ];
    expect((told?.x ?? 0) + (told?.width ?? 0)).toBeLessThanOrEqual((table?.x ?? 0) + (table?.width ?? 0));
    expect(await row.getByRole('cell').first().innerText()).toBe('5');
    await page.getByRole('button', { name: 'Create 2 devices' }).click();
    await page.getByText('Done: 2 of 2.').waitFor();
    // Until the tokens are kept, nothing closes.
    expect(await page.getByRole('button', { name: 'Close' }).count()).toBe(0);
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Save 2 tokens' }).click(),
    ]);
    const lines = (await readFile(await saved.path(), 'utf8')).trim().split('\r\n');
    expect(lines[0]).toBe('name,id,token');
    const [name, id, token = ''] = (lines[1] ?? '').split(',');
    expect(name).toBe('Fridge 1');
    await fleet.event(token, { temperature: 4 });
    const made = await fleet.call<{ meta: unknown; name: string }>('GET', `/devices/${id}`);
    expect(made).toMatchObject({
      name: 'Fridge 1',
      meta: { Floor: 3, Serial: '0012', latitude: 52.5, longitude: 13.4 },
    });
    await page.getByRole('link', { name: 'All devices' }).click();
    await page.getByText('2 devices').waitFor();
  });

  it('are left alone when the file is none, or too long', async () => {
    const { page } = visitor;
    await visitor.open('/devices/import');
    const input = page.locator('input[type=file]');
    await input.setInputFiles(file(['name']));
    await page.getByText('fridges.csv holds no table').waitFor();
    await input.setInputFiles(file(['name', ...Array.from({ length: 10_001 }, (_, index) => `Fridge ${index}`)]));
    await page.getByText('The file has 10,001 lines').waitFor();
    await input.setInputFiles({ ...file([]), buffer: Buffer.from([0x50, 0x4b, 3, 4, 0, 0, 8, 0]) });
    await page.getByText('fridges.csv is not a text file').waitFor();
    await input.setInputFiles(file(['name', '"Fridge 1', 'Fridge 2']));
    await page.getByText('A quote opened in line 2 is never closed').waitFor();
  });

  it('have their umlauts when a spreadsheet has written it as of old', async () => {
    const { page } = visitor;
    await visitor.open('/devices/import');
    const buffer = Buffer.from('Name;Projekt\r\nKühlraum \x96 1;Cold chain\r\n', 'latin1');
    await page.locator('input[type=file]').setInputFiles({ ...file([]), buffer });
    await page.getByText('Kühlraum – 1').first().waitFor();
    await page.getByRole('button', { name: 'Check the lines' }).click();
    await page.getByText('1 of 1 lines can become devices.').waitFor();
  });

  it('are not lost by leaving before the tokens are saved, unless one means it', async () => {
    const { page } = visitor;
    await visitor.open('/devices/import');
    await page.locator('input[type=file]').setInputFiles(file(['name', 'Only one']));
    await page.getByRole('button', { name: 'Check the lines' }).click();
    await page.getByRole('button', { name: 'Create one device' }).click();
    await page.getByText('Done: 1 of 1.').waitFor();
    page.once('dialog', (dialog) => void dialog.dismiss());
    const asked = page.waitForEvent('dialog');
    await page.getByRole('link', { name: 'Overview' }).first().click();
    expect((await asked).message()).toContain('The tokens of the new devices are not saved');
    expect(new URL(page.url()).pathname).toBe('/devices/import');
    await page.getByRole('button', { name: 'Save one token' }).waitFor();
  });
});
