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
    await page.getByText('its e-mail address must be confirmed before you can sign in').waitFor();
    await page.getByText('This server sends no e-mail').waitFor();
    expect(await page.getByText(/link was sent|sent a link|Send the link/).count()).toBe(0);
  });

  it('who signs in too early hears so, and is in with the link', async () => {
    const { page } = visitor;
    await page.goto('/');
    const name = await page.getByLabel('Username or e-mail').getAttribute('id');
    await expect.poll(focused).toBe(name);
    await page.getByLabel('Username or e-mail').fill('nora');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('You may have to confirm its e-mail address first').waitFor();
    await page.getByText('This server sends no e-mail').waitFor();
    await expect.poll(async () => (await links()).length).toBe(1);
    await page.goto((await links())[0] ?? '');
    await page.getByRole('heading', { name: 'Address confirmed' }).waitFor();
    await page.getByRole('link', { name: 'Go to the console' }).click();
    await visitor.signIn('nora', PASSWORD);
    await page.getByRole('heading', { level: 1, name: 'Frei Storage' }).waitFor();
  });

  it('who has lost a password hears that no link comes, whoever it is', async () => {
    const { page } = visitor;
    await page.goto('/forgot');
    await page.getByText('This server sends no e-mail').waitFor();
    expect(await page.getByRole('textbox').count()).toBe(0);
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
    expect(await page.getByText('must be confirmed').count()).toBe(0);
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
