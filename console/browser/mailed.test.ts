import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';
import { person } from './tenants';

// A server for e-mail is set up. Nobody listens there: what goes out waits, and the pages say the same.
stage(() => Promise.resolve(), {
  ISOBAR_REGISTRATION__REQUIRE_VERIFIED_EMAIL: 'true',
  ISOBAR_MAIL__SMTP_URL: 'smtp://127.0.0.1:9?tls=none',
});
withVisitor();

describe('where e-mails go out', () => {
  it('a link is sent again to who waits for one', async () => {
    const { page } = visitor;
    await page.goto('/register');
    for (const label of ['First name', 'Last name', 'Company']) await page.getByLabel(label).fill('Frei');
    await page.getByLabel('E-mail').fill('nora@example.com');
    await page.getByLabel('Username').fill('nora');
    await page.getByLabel('Password', { exact: true }).fill('north-wind-3');
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByText('We have sent a link to nora@example.com').waitFor();
    await page.getByRole('button', { name: 'Send the link again' }).click();
    await page.getByText('a link was sent').waitFor();
  });

  it('nobody learns whose name has an account', async () => {
    const { page } = visitor;
    for (const name of ['nobody', 'admin']) {
      await page.goto('/forgot');
      await page.getByLabel('Username or e-mail').fill(name);
      await page.getByRole('button', { name: 'Send the link' }).click();
      await page.getByText('If the account exists, a link was sent').waitFor();
    }
  });

  it('users are invited by a link, which is sent again where one is lost', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'tom', 'basicUser', fleet.organizationId);
    await visitor.open('/users?new');
    await page.getByLabel('First name').fill('Ivo');
    await page.getByLabel('Last name').fill('Brandt');
    await page.getByLabel('E-mail', { exact: true }).fill('ivo@example.com');
    await page.getByRole('button', { name: 'Create the user' }).click();
    await page.getByText('A link to choose a password was sent to ivo@example.com').waitFor();
    await page.goto(`/users/${id}`);
    await page.getByRole('button', { name: 'Send a link' }).click();
    await page.getByText('A link was sent to').waitFor();
    await page.goto('/profile');
    expect(await page.getByText('This server sends no e-mail').count()).toBe(0);
  });
});
