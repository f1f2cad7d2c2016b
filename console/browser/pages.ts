import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  type ConsoleMessage,
  type Page,
  type Request,
  chromium,
} from 'playwright-core';
import { ADMIN } from './server';

/** What moves arrives at once: nothing is waited for, and nothing is drawn on the way. */
const STILL: BrowserContextOptions = { reducedMotion: 'reduce' };
export const PHONE: BrowserContextOptions = {
  ...STILL,
  viewport: { width: 390, height: 844 },
  hasTouch: true,
  isMobile: true,
  deviceScaleFactor: 2,
};
export const DESK: BrowserContextOptions = { ...STILL, viewport: { width: 1360, height: 850 } };

/** Every name but that of this machine leads nowhere. */
const AT_HOME = '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost';
/** There is no graphics card where tests run, and computing one is dearer than drawing without. */
const WITHOUT_CARD = '--disable-gpu';
/**
 * What nobody sees of a window: lists beneath its address bar are pages with a process of their own, which cost more than what is
 * tested. The list replaces Playwright's, so what that switches off stands here too.
 */
const WITHOUT = [
  'WebUIOmniboxPopup',
  'WebUIOmniboxAimPopup',
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'HttpsUpgrades',
  'LensOverlay',
  'MediaRouter',
  'NetworkTimeServiceQuerying',
  'OptimizationHints',
  'PaintHolding',
  'PreconnectToSearch',
];

/** Debian's browser, or another that `CHROMIUM` names. What it is asked for from another machine it does not find. */
export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', AT_HOME, WITHOUT_CARD, `--disable-features=${WITHOUT.join(',')}`],
  });
}

/** Of a page on which a test failed so much is told, and waited for no longer. */
const TOLD_MAX = 20_000;
const TOLD_WITHIN_MS = 5_000;

/** What visitors leave behind for the next: the files that the server lets a browser keep for ever, and nothing else. */
const kept = new WeakMap<Browser, Map<string, BrowserContext[]>>();

function keptFor(browser: Browser, options: BrowserContextOptions): BrowserContext[] {
  const all = kept.get(browser) ?? new Map<string, BrowserContext[]>();
  kept.set(browser, all);
  const key = JSON.stringify(options);
  const some = all.get(key) ?? [];
  all.set(key, some);
  return some;
}

/** Closes whatever visitors have left open or left behind. */
export async function clear(browser: Browser): Promise<void> {
  kept.delete(browser);
  await Promise.all(browser.contexts().map((context) => context.close()));
}

/** As in a browser in which somebody has signed in: the server is asked whether the session goes on. */
function knowSession(): void {
  if (location.protocol !== 'about:') localStorage.setItem('visit', 'open');
}

/** A visitor, and what went wrong on the pages that it opened. */
export class Visitor {
  /** Requests that would have left this machine. They found nobody. */
  readonly strays: string[] = [];
  /** Violations of the content security policy, exceptions, and errors that the browser reported. */
  readonly faults: string[] = [];

  private constructor(
    readonly context: BrowserContext,
    readonly page: Page,
    readonly url: string,
    /** Where its context goes when it leaves; without one it is closed. */
    private readonly keep: BrowserContext[] | null,
  ) {}

  /** Somebody to whom everything is new, in a browser that may have loaded the console before. */
  static async come(browser: Browser, url: string, options: BrowserContextOptions = DESK): Promise<Visitor> {
    const all = { baseURL: url, locale: 'en-GB', timezoneId: 'Europe/Berlin', ...options };
    const keep = keptFor(browser, all);
    const visitor = await Visitor.#into(keep.pop() ?? (await browser.newContext(all)), url, keep);
    await visitor.#forget();
    return visitor;
  }

  /** Somebody whose browser has loaded nothing of the console yet. */
  static async comeFirst(browser: Browser, url: string, options: BrowserContextOptions = DESK): Promise<Visitor> {
    const all = { baseURL: url, locale: 'en-GB', timezoneId: 'Europe/Berlin', ...options };
    return Visitor.#into(await browser.newContext(all), url, null);
  }

  static async #into(context: BrowserContext, url: string, keep: BrowserContext[] | null): Promise<Visitor> {
    if (keep && context.pages().length === 0) await context.newPage();
    const page = await context.newPage();
    const visitor = new Visitor(context, page, url, keep);
    context.on('request', visitor.#asked);
    page.on('pageerror', (error) => visitor.faults.push(String(error.stack ?? error)));
    page.on('console', visitor.#said);
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        // eslint-disable-next-line no-console
        console.error(
          `policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile ?? ''}:${event.lineNumber}`,
        );
      });
    });
    return visitor;
  }

  readonly #asked = (request: Request): void => {
    const { protocol, hostname } = new URL(request.url());
    if (!['blob:', 'data:'].includes(protocol) && !['127.0.0.1', 'localhost'].includes(hostname))
      this.strays.push(request.url());
  };

  readonly #said = (message: ConsoleMessage): void => {
    // A refused call is told by the page itself; the browser reports it too.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      this.faults.push(message.text());
  };

  /** Takes away what was kept of whoever was here before. */
  async #forget(): Promise<void> {
    const session = await this.context.newCDPSession(this.page);
    await session.send('Storage.clearDataForOrigin', {
      origin: this.url,
      storageTypes: 'local_storage,indexeddb,cache_storage,service_workers',
    });
    await session.detach();
    await this.context.clearCookies();
    await this.context.setOffline(false);
  }

  /** Opens a page as somebody whose session goes on from an earlier visit. */
  async open(path = '/', name = ADMIN.name, password = ADMIN.password): Promise<void> {
    const data = { usernameOrEmail: name, password };
    const answer = await this.context.request.post('/v2/auth/login', { data });
    if (!answer.ok()) throw new Error(`${name} is not let in: ${answer.status()} ${await answer.text()}`);
    await this.page.addInitScript(knowSession);
    await this.page.goto(path);
    await this.page.getByRole('navigation').first().waitFor();
  }

  /** Signs in as people do, where the page asks for it. */
  async signIn(name = ADMIN.name, password = ADMIN.password): Promise<void> {
    if (this.page.url() === 'about:blank') await this.page.goto('/');
    await this.page.getByLabel('Username or e-mail').fill(name);
    await this.page.getByLabel('Password', { exact: true }).fill(password);
    await this.page.getByRole('button', { name: 'Sign in' }).click();
    await this.page.getByRole('navigation', { name: 'Main navigation' }).waitFor();
  }

  /** Where its page is, and what there is on it: for whoever reads of a failure. A page that does not answer is told of too. */
  async shown(): Promise<string> {
    const tree = await this.page.locator('body').ariaSnapshot({ timeout: TOLD_WITHIN_MS }).catch(String);
    return `${this.page.url()}\n${tree.slice(0, TOLD_MAX)}`;
  }

  async leave(): Promise<void> {
    this.context.off('request', this.#asked);
    if (!this.keep) return this.context.close();
    // The first page holds the window, as a new one costs more than a new page.
    const [, ...pages] = this.context.pages();
    await Promise.all(pages.map((page) => page.close()));
    this.keep.push(this.context);
  }
}
