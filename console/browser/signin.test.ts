import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ADMIN } from './server';
import { fleet, server, visitor, stage, withVisitor } from './stage';

stage();
withVisitor();

const ASKED_BY_ITSELF = /\/v2\/(?!auth\/|devices)/;

describe('sign-in', () => {
  it('leads to the overview, and a reload stays there', async () => {
    const { page } = visitor;
    await visitor.signIn();
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
    expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toContain('eyJ');
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
  });

  it('tells of the first user until somebody has signed in', async () => {
    const { page } = visitor;
    await page.goto('/');
    await page.getByText('Sign in as admin').waitFor();
    await visitor.signIn();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByLabel('Username or e-mail').waitFor();
    expect(await page.getByText('Sign in as admin').count()).toBe(0);
  });

  it('with a wrong password says so, and does not say which part is wrong', async () => {
    const { page } = visitor;
    await page.goto('/');
    await page.getByLabel('Username or e-mail').fill(ADMIN.name);
    await page.getByLabel('Password', { exact: true }).fill('wrong-one');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').getByText('Wrong username or password').waitFor();
    expect(await page.getByLabel('Password', { exact: true }).inputValue()).toBe('');
  });

  it('at a deep address goes on there', async () => {
    const { page } = visitor;
    await page.goto('/devices?q=none&sort=-createdAt');
    await page.getByLabel('Username or e-mail').waitFor();
    await visitor.signIn();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    expect(new URL(page.url()).search).toBe('?q=none&sort=-createdAt');
    expect(await page.getByLabel('Search name, description, labels').inputValue()).toBe('none');
  });

  it('is asked for again when the session has ended, and comes back to where one was', async () => {
    const { page } = visitor;
    await page.goto('/notifications');
    await visitor.signIn();
    await page.getByRole('heading', { level: 1, name: 'Notifications' }).waitFor();
    // The first refusal leads to the sign-in page, whoever asked: nothing is answered before one has gone on.
    let goOn!: () => void;
    const hasGoneOn = new Promise<void>((resolve) => (goOn = resolve));
    await page.route('**/v2/**', async (route) => {
      await hasGoneOn;
      await route.fallback();
    });
    await endSession();
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    goOn();
    await page.getByText('Your session has ended').waitFor();
    await page.unrouteAll();
    await visitor.signIn();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    expect(new URL(page.url()).pathname).toBe('/devices');
  });

  it('outlives an access token: it is renewed once, unseen', async () => {
    const { page } = visitor;
    await visitor.signIn();
    let renewals = 0;
    page.on('request', (request) => (renewals += Number(request.url().endsWith('/v2/auth/refreshToken'))));
    // The first answer to each call is 401, as with a token that was revoked.
    let refused = 0;
    await page.route('**/v2/devices?**', async (route) => {
      if ((refused += 1) > 1) return route.fallback();
      return route.fulfill({ status: 401, json: { message: 'the token has ended', errors: [] } });
    });
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.getByText('No device yet').waitFor();
    expect(refused).toBeGreaterThan(1);
    expect(renewals).toBe(1);
  });

  it('ends with a sign-out, in every tab', async () => {
    const { page } = visitor;
    await visitor.signIn();
    const other = await visitor.context.newPage();
    await other.goto('/devices');
    await other.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByLabel('Username or e-mail').waitFor();
    await other.getByLabel('Username or e-mail').waitFor();
    await page.reload();
    await page.getByLabel('Username or e-mail').waitFor();
  });

  /**
   * Ends the session behind the page's back, as signing out at another machine's copy of it would. What the page asks by itself
   * meanwhile is not answered: it hears of the end with what is done next.
   */
  async function endSession(): Promise<void> {
    const { page } = visitor;
    await page.route(ASKED_BY_ITSELF, () => undefined);
    const asked = page.waitForRequest(ASKED_BY_ITSELF);
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    const { authorization = '' } = (await asked).headers();
    const cookies = await visitor.context.cookies(`${server.url}/v2/auth/logout`);
    const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    const ended = await fetch(`${server.url}/v2/auth/logout`, { method: 'POST', headers: { authorization, cookie } });
    expect(ended.status).toBe(204);
  }
});

describe('accounts', () => {
  it('are made, with an organization of their own', async () => {
    const { page } = visitor;
    await page.goto('/');
    await page.getByRole('link', { name: 'Create an account' }).click();
    await page.getByLabel('First name').fill('Nora');
    await page.getByLabel('Last name').fill('Frei');
    await page.getByLabel('Company').fill('Frei Storage');
    await page.getByLabel('E-mail').fill('nora@example.com');
    await page.getByLabel('Username').fill('nora');
    await page.getByLabel('Password', { exact: true }).fill('north-wind-3');
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByRole('heading', { level: 1, name: 'Frei Storage' }).waitFor();
    await page.getByText('Your account and your organization are ready').waitFor();
    expect(await page.getByText('A link was sent').count()).toBe(0);
  });

  it('that exist already are refused at the field', async () => {
    const { page } = visitor;
    await fleet.user('taken', 'basicUser');
    await page.goto('/register');
    for (const label of ['First name', 'Last name', 'Company']) await page.getByLabel(label).fill('x');
    await page.getByLabel('E-mail').fill('other@example.com');
    await page.getByLabel('Username').fill('taken');
    await page.getByLabel('Password', { exact: true }).fill('north-wind-3');
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByRole('alert').waitFor();
    expect(await page.getByLabel('Username').getAttribute('aria-invalid')).toBe('true');
  });

  it('with a lost password get a new one by e-mail; the link is good once and leaves no trace', async () => {
    const { page } = visitor;
    const { id } = await fleet.user('forgetful', 'basicUser');
    const { key } = await fleet.call<{ key: string }>('POST', `/users/${id}/apiKeys`, { name: 'script' });
    const link = await forgets('forgetful');
    await page.goto(link);
    await page.getByLabel('New password').waitFor();
    expect(page.url()).not.toContain('resetToken');
    await page.getByLabel('New password').fill('south-wind-4');
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByText('The new password is set').waitFor();
    await page.getByRole('link', { name: 'Sign in' }).click();
    await visitor.signIn('forgetful', 'south-wind-4');
    await visitor.context.clearCookies();
    await page.goto(link);
    await page.getByLabel('New password').fill('west-wind-5');
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByText('This link was used already').waitFor();
    expect(await statusWith(key)).toBe(200);
  });

  it('with a lost password end their API keys by the same link where they ask for it', async () => {
    const { page } = visitor;
    const { id } = await fleet.user('robbed', 'basicUser');
    const { key } = await fleet.call<{ key: string }>('POST', `/users/${id}/apiKeys`, { name: 'script' });
    expect(await statusWith(key)).toBe(200);
    await page.goto(await forgets('robbed'));
    await page.getByLabel('New password').fill('south-wind-4');
    await page.getByRole('switch', { name: 'Also delete all API keys' }).check();
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByText('The new password is set').waitFor();
    expect(await statusWith(key)).toBe(401);
  });

  it('confirm their address by e-mail', async () => {
    const { page } = visitor;
    await fleet.user('fresh', 'basicUser');
    await page.goto(await linkIn(/\/v2\/auth\/verify\/[\w-]+/, 'fresh@example.com'));
    await page.getByRole('heading', { name: 'Address confirmed' }).waitFor();
    expect(new URL(page.url()).pathname).toBe('/verified');
  });

  it('hear of a link that was opened before', async () => {
    const { page } = visitor;
    await fleet.user('late', 'basicUser');
    await page.goto('/?verified=0');
    await page.getByRole('heading', { name: 'This link was used already' }).waitFor();
    await page.reload();
    await page.getByText('This server sends no e-mail').waitFor();
  });

  /** Asks for a link to set a new password, and finds it: without a server for e-mail, in a file. */
  async function forgets(name: string): Promise<string> {
    const body = JSON.stringify({ emailOrUsername: name });
    const headers = { 'content-type': 'application/json' };
    expect((await fetch(`${server.url}/v2/auth/forgot`, { method: 'POST', headers, body })).status).toBe(204);
    return linkIn(/\/\?resetToken=[\w-]+/, `${name}@example.com`);
  }

  /** What the interface answers to an API key. */
  async function statusWith(key: string): Promise<number> {
    const answer = await fetch(`${server.url}/v2/auth/user`, { headers: { api_auth_token: key } });
    return answer.status;
  }

  /** The newest link of this form that an e-mail brought. */
  async function linkIn(form: RegExp, to = ''): Promise<string> {
    for (let attempt = 0; attempt < 100; attempt += 1) {
      const names = (await readdir(server.mail).catch(() => []))
        .filter((name) => name.endsWith('.eml'))
        .sort()
        .reverse();
      for (const name of names) {
        const text = (await readFile(join(server.mail, name), 'utf8')).replaceAll('=\r\n', '').replaceAll('=3D', '=');
        const found = form.exec(text);
        if (found && text.includes(to)) return found[0];
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`no e-mail brought ${form}`);
  }
});
