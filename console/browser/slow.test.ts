import { brotliCompressSync } from 'node:zlib';
import type { Response } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { Visitor } from './pages';
import { browser, fleet, server, stage, visitor, withVisitor } from './stage';

/** What the console itself may weigh, compressed, until the sign-in page and then the overview stand. */
const SIGN_IN_MAX = 70_000;
const OVERVIEW_MAX = 190_000;
const SHOWN_WITHIN_MS = 100;

let north: { id: string };

stage(async () => {
  const project = await fleet.project('Cold rooms');
  north = await fleet.device('North', project, { meta: { latitude: 53.5, longitude: 9.9 } });
  await fleet.device('South', project, { meta: { latitude: 48.1, longitude: 11.6 } });
});
withVisitor((of, url) => Visitor.comeFirst(of, url));

describe('on a slow network', () => {
  it('the page shows itself before anything of the console is fetched', async () => {
    const { page } = visitor;
    let goOn!: () => void;
    const isFetched = new Promise<void>((resolve) => (goOn = resolve));
    await page.route('**/assets/**', async (route) => {
      await isFetched;
      await route.fallback();
    });
    await page.goto('/', { waitUntil: 'commit' });
    await page.getByRole('progressbar', { name: 'Isobar' }).waitFor();
    expect(await page.getByText('Isobar', { exact: true }).isVisible()).toBe(true);
    goOn();
    await page.getByLabel('Username or e-mail').waitFor();
    expect(await page.locator('.first').isVisible()).toBe(false);
  });

  it('a click shows at once that a page is on its way', async () => {
    const { page } = visitor;
    await visitor.open('/');
    let goOn!: () => void;
    const isFetched = new Promise<void>((resolve) => (goOn = resolve));
    await page.route('**/assets/**', async (route) => {
      await isFetched;
      await route.fallback();
    });
    await page.getByRole('link', { name: 'Projects', exact: true }).evaluate((link) => {
      const began = performance.now();
      new MutationObserver((_, observer) => {
        if (document.body.ariaBusy !== 'true') return;
        document.body.dataset.shown = String(performance.now() - began);
        observer.disconnect();
      }).observe(document.body, { attributes: true });
      (link as HTMLElement).click();
    });
    await page.locator('#app [role="progressbar"]').waitFor();
    expect(Number(await page.locator('body').getAttribute('data-shown'))).toBeLessThan(SHOWN_WITHIN_MS);
    goOn();
    await page.getByRole('heading', { level: 1, name: 'Projects' }).waitFor();
    await page.locator('body[aria-busy="false"]').waitFor();
    expect(await page.locator('#app [role="progressbar"]').count()).toBe(0);
  });

  it('a device has no link without words while the name of its project is on its way', async () => {
    const { page } = visitor;
    let goOn!: () => void;
    const isAnswered = new Promise<void>((resolve) => (goOn = resolve));
    await page.route('**/v2/projects/*', async (route) => {
      await isAnswered;
      await route.fallback();
    });
    await visitor.open(`/devices/${north.id}`);
    await page.getByRole('heading', { level: 1, name: 'North' }).waitFor();
    expect(await page.locator('main a:empty').count()).toBe(0);
    goOn();
    await page.getByRole('link', { name: 'Cold rooms' }).waitFor();
  });

  it('signing in and the overview fetch what they show, and no more', async () => {
    const { page } = visitor;
    const files: Response[] = [];
    page.on('response', (response) => {
      if (!new URL(response.url()).pathname.startsWith('/v2/')) files.push(response);
    });
    const weight = async (): Promise<number> => {
      const bodies = await Promise.all(files.map((file) => file.body()));
      return bodies.reduce((sum, body) => sum + Math.min(brotliCompressSync(body).length, body.length), 0);
    };
    await page.goto('/');
    await page.getByLabel('Username or e-mail').waitFor();
    await page.waitForLoadState('networkidle');
    expect(await weight()).toBeLessThan(SIGN_IN_MAX);
    await visitor.signIn();
    await page.getByRole('application', { name: /map/i }).locator('svg').waitFor();
    await page.waitForLoadState('networkidle');
    expect(await weight()).toBeLessThan(OVERVIEW_MAX);
    // Coming nearer is what the detailed map is for.
    const isDetailed = page.waitForResponse(/countries-50m/);
    await page.getByRole('button', { name: 'Zoom in' }).click();
    await isDetailed;
  });

  it('whoever was here before waits for no part after the other', async () => {
    await visitor.signIn();
    const { page } = visitor;
    await page.getByRole('heading', { level: 1, name: 'Root' }).waitFor();
    // The page of the overview is fetched while it is asked who is signed in.
    const again = await Visitor.comeFirst(browser, server.url);
    await again.page.addInitScript(() => localStorage.setItem('visit', 'open'));
    await again.page.route('**/v2/auth/refreshToken', () => undefined);
    const isFetched = again.page.waitForResponse(/assets\/Overview/);
    await again.page.goto('/');
    await isFetched;
    await again.leave();
  });
});
