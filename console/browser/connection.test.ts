import { describe, expect, it, onTestFinished } from 'vitest';
import { Visitor } from './pages';
import { fleet, server, visitor, stage, withVisitor } from './stage';

const RETRY_AFTER_S = 2;

stage();
// What a browser has already need not be fetched: here it has nothing yet.
withVisitor((browser, url) => Visitor.comeFirst(browser, url));

describe('a lost connection', () => {
  it('is told above the page, and the page goes on by itself when it is back', async () => {
    const { page, context } = visitor;
    await visitor.open();
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
    await context.setOffline(true);
    await page.getByText('No connection to the server').waitFor();
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByText('The server does not respond').waitFor();
    // It is said for seconds only.
    const told = page.getByText('Connected again').waitFor();
    await context.setOffline(false);
    await page.getByText('No device yet').waitFor();
    await told;
    expect(await page.getByText('No connection to the server').count()).toBe(0);
    expect(await page.getByText('The server does not respond').count()).toBe(0);
  });

  it('outlives a server that is started again', async () => {
    const { page } = visitor;
    await visitor.open();
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await server.halt();
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    await page.getByText('No connection to the server').waitFor();
    await server.resume();
    await page.getByText('No connection to the server').waitFor({ state: 'hidden' });
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
  });

  it('takes no page away: one that cannot be fetched yet is opened when the server is back', async () => {
    const { page, context } = visitor;
    await visitor.open();
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
    await context.setOffline(true);
    await page.getByRole('link', { name: 'Organizations' }).click();
    await page.getByText('No connection to the server').waitFor();
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
    const told = page.getByText('Connected again').waitFor();
    await context.setOffline(false);
    await page.getByRole('heading', { level: 1, name: 'Organizations' }).waitFor();
    await told;
    expect(new URL(page.url()).pathname).toBe('/organizations');
  });

  it.each(['before it is back', 'when it is back already'])(
    'is told to be over when a part of the page has to be fetched anew, which is heard of %s',
    async (when) => {
      const { page, context } = visitor;
      const project = await fleet.project('Places');
      const { id } = await fleet.device('Lighthouse', project, { meta: { latitude: 54.18, longitude: 7.88 } });
      onTestFinished(() => fleet.call('DELETE', `/devices/${id}`));
      let lose!: () => void;
      const lost = new Promise<void>((resolve) => (lose = resolve));
      await page.route(
        '**/Places-*.js',
        async (route) => {
          await lost;
          await route.abort('internetdisconnected');
        },
        { times: 1 },
      );
      await visitor.open();
      await page.getByRole('heading', { level: 2, name: 'Places' }).waitFor();
      await context.setOffline(true);
      await page.getByText('No connection to the server').waitFor();
      const anew = page.waitForEvent('load');
      if (when === 'before it is back') lose();
      await context.setOffline(false);
      await page.getByText('No connection to the server').waitFor({ state: 'hidden' });
      lose();
      await anew;
      await page.getByText('Connected again').waitFor();
      await page.getByRole('application', { name: 'Map of the devices' }).waitFor();
    },
  );

  it('leaves nothing that says it is live', async () => {
    const { page, context } = visitor;
    const project = await fleet.project('Cold chain');
    const { id } = await fleet.device('Fridge', project);
    onTestFinished(() => fleet.call('DELETE', `/devices/${id}`));
    let answer!: () => void;
    const isAnswered = new Promise<void>((resolve) => (answer = resolve));
    await page.route(
      '**/v2/notifications?**',
      async (route) => {
        await isAnswered;
        await route.fulfill({ json: { data: [], meta: { totalDocs: 1 } } });
      },
      { times: 1 },
    );
    await visitor.open(`/devices/${id}/events`);
    const live = page.getByRole('main').getByText('Live', { exact: true });
    await live.waitFor();
    await context.setOffline(true);
    await page.getByText('No connection to the server').waitFor();
    await page.getByText('Interrupted, connecting again').waitFor();
    // An answer to what was asked before tells of no return.
    answer();
    await page.getByRole('link', { name: 'Notifications, 1 unread' }).waitFor();
    expect(await live.count()).toBe(0);
    await context.setOffline(false);
    await live.waitFor();
  });

  it('at the very start waits for the server, and goes on with it', async () => {
    const { page } = visitor;
    await visitor.open();
    await page.route('**/v2/**', (route) => route.abort());
    await page.goto('/devices');
    await page.getByText('The server does not respond').waitFor();
    await page.unroute('**/v2/**');
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
  });
});

describe('another machine', () => {
  it.each(['http://elsewhere.example/', 'https://192.0.2.7/'])(
    'is not reached, and that it was asked is seen: %s',
    async (address) => {
      await expect(visitor.page.goto(address)).rejects.toThrow('ERR_NAME_NOT_RESOLVED');
      expect(visitor.strays.splice(0)).toEqual([address]);
    },
  );
});

describe('one call that fails', () => {
  it('is no lost connection', async () => {
    const { page } = visitor;
    await visitor.open();
    await page.route('**/v2/devices?**', (route) => route.abort());
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByText('The server does not respond').waitFor();
    const looked = page.waitForResponse('**/v2/about');
    await page.getByRole('button', { name: 'Try again' }).click();
    await looked;
    expect(await page.getByText('No connection to the server').count()).toBe(0);
    await page.unroute('**/v2/devices?**');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByText('No device yet').waitFor();
  });
});

describe('too many requests', () => {
  it('are told with the wait, after which it is tried again by itself', async () => {
    const { page } = visitor;
    await visitor.open();
    // Its clock stands while it is looked at, so that the wait is not over before.
    await page.clock.setFixedTime(Date.now());
    let asked = 0;
    await page.route('**/v2/organizations/*/usage', async (route) => {
      if ((asked += 1) > 1) return route.fallback();
      return route.fulfill({
        status: 429,
        headers: { 'retry-after': String(RETRY_AFTER_S) },
        json: { message: 'too many requests', errors: [] },
      });
    });
    await page.getByRole('link', { name: 'Organizations' }).click();
    await page.getByRole('link', { name: 'Root' }).click();
    await page.getByText('Too many requests in a short time').waitFor();
    await page.getByText(/Trying again in \d s/).waitFor();
    expect(await page.getByRole('button', { name: 'Try again' }).isDisabled()).toBe(true);
    await page.clock.setFixedTime(Date.now() + RETRY_AFTER_S * 1_000);
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
    expect(asked).toBe(2);
  });
});
