import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { server, stage, visitor, withVisitor } from './stage';

stage(() => Promise.resolve(), { ISOBAR_REGISTRATION__REQUIRE_VERIFIED_EMAIL: 'true' });
withVisitor();

const PASSWORD = 'north-wind-3';

describe('where addresses must be confirmed first', () => {
  it('a registration tells all its faults at once, and then what it waits for', async () => {
    const { page } = visitor;
    await page.goto('/register');
    await page.getByLabel('Company').fill('Frei Storage');
    await page.getByLabel('E-mail').fill('nora at example.com');
    await page.getByLabel('Password', { exact: true }).fill('north');
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByText('This is not a valid e-mail address.').waitFor();
    expect(await page.getByText('This is required.').count()).toBe(3);
    await page.getByText('At least 6 characters.').waitFor();
    expect(await focused()).toBe(await page.getByLabel('First name').getAttribute('id'));
    await page.getByLabel('First name').fill('Nora');
    await page.getByLabel('Last name').fill('Frei');
    await page.getByLabel('E-mail').fill('nora@example.com');
    await page.getByLabel('Username').fill('nora');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    expect(await page.getByText('This is required.').count()).toBe(0);
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByText('We have sent a link to nora@example.com').waitFor();
    await page.getByRole('button', { name: 'Send the link again' }).click();
    await page.getByText('a link was sent to it').waitFor();
    await expect.poll(async () => (await links()).length).toBe(2);
  });

  it('who signs in too early gets the link again, and is in with it', async () => {
    const { page } = visitor;
    await page.goto('/');
    const name = await page.getByLabel('Username or e-mail').getAttribute('id');
    await expect.poll(focused).toBe(name);
    await page.getByLabel('Username or e-mail').fill('nora');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('You may have to confirm its e-mail address first').waitFor();
    const before = await links();
    await page.getByRole('button', { name: 'Send the link again' }).click();
    await page.getByText('a link was sent to it').waitFor();
    await expect.poll(async () => (await links()).length).toBeGreaterThan(before.length);
    const fresh = (await links()).filter((link) => !before.includes(link));
    await page.goto(fresh[0] ?? '');
    await page.getByRole('heading', { name: 'Address confirmed' }).waitFor();
    await page.getByRole('link', { name: 'Go to the console' }).click();
    await visitor.signIn('nora', PASSWORD);
    await page.getByRole('heading', { level: 1, name: 'Frei Storage' }).waitFor();
  });

  it('nobody learns whose name has an account', async () => {
    const { page } = visitor;
    await page.goto('/forgot');
    await page.getByLabel('Username or e-mail').fill('nobody');
    await page.getByRole('button', { name: 'Send the link' }).click();
    await page.getByText('If the account exists, a link was sent').waitFor();
  });

  it('an account that could not be signed in for another reason is not said to wait for a link', async () => {
    const { page } = visitor;
    await page.route('**/v2/auth/login', (route) =>
      route.fulfill({ status: 503, json: { message: 'busy', errors: [] } }),
    );
    await page.goto('/register');
    for (const label of ['First name', 'Last name', 'Company']) await page.getByLabel(label).fill('Frei');
    await page.getByLabel('E-mail').fill('frei@example.com');
    await page.getByLabel('Username').fill('frei');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByText('Your account was created, but signing in failed.').waitFor();
    await page.getByText('The server is busy').waitFor();
    expect(await page.getByText('We have sent a link').count()).toBe(0);
  });

  /** Which element has the focus. */
  function focused(): Promise<string> {
    return visitor.page.evaluate(() => document.activeElement?.id ?? '');
  }

  /** The links to confirm an address that e-mails have brought. */
  async function links(): Promise<string[]> {
    const names = (await readdir(server.mail).catch(() => [])).filter((name) => name.endsWith('.eml'));
    const texts = await Promise.all(names.map((name) => readFile(join(server.mail, name), 'utf8')));
    return texts.flatMap((text) => {
      const found = /\/v2\/auth\/verify\/[\w-]+/.exec(text.replaceAll('=\r\n', '').replaceAll('=3D', '='));
      return found ? [found[0]] : [];
    });
  }
});
