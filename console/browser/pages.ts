import { type Browser, type BrowserContext, type BrowserContextOptions, type Page, chromium } from 'playwright-core';
import { ADMIN } from './server';

export const PHONE: BrowserContextOptions = {
  viewport: { width: 390, height: 844 },
  hasTouch: true,
  isMobile: true,
  deviceScaleFactor: 2,
};
export const DESK: BrowserContextOptions = { viewport: { width: 1360, height: 850 } };

/** Debian's browser, or another that `CHROMIUM` names. */
export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
}

/** A visitor, and what went wrong on the pages that it opened. */
export class Visitor {
  /** Requests that would have left this machine. They were refused. */
  readonly strays: string[] = [];
  /** Violations of the content security policy, exceptions, and errors that the browser reported. */
  readonly faults: string[] = [];

  private constructor(
    readonly context: BrowserContext,
    readonly page: Page,
    readonly url: string,
  ) {}

  static async come(browser: Browser, url: string, options: BrowserContextOptions = DESK): Promise<Visitor> {
    const context = await browser.newContext({
      baseURL: url,
      locale: 'en-GB',
      timezoneId: 'Europe/Berlin',
      ...options,
    });
    const page = await context.newPage();
    const visitor = new Visitor(context, page, url);
    await context.route('**/*', async (route) => {
      const { protocol, hostname } = new URL(route.request().url());
      if (['blob:', 'data:'].includes(protocol) || ['127.0.0.1', 'localhost'].includes(hostname))
        return route.fallback();
      visitor.strays.push(route.request().url());
      return route.abort();
    });
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        // eslint-disable-next-line no-console
        console.error(
          `policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile ?? ''}:${event.lineNumber}`,
        );
      });
    });
    page.on('pageerror', (error) => visitor.faults.push(String(error.stack ?? error)));
    page.on('console', (message) => {
      // A refused call is told by the page itself; the browser reports it too.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
        visitor.faults.push(message.text());
      }
    });
    return visitor;
  }

  async signIn(name = ADMIN.name, password = ADMIN.password): Promise<void> {
    if (this.page.url() === 'about:blank') await this.page.goto('/');
    await this.page.getByLabel('Username or e-mail').fill(name);
    await this.page.getByLabel('Password', { exact: true }).fill(password);
    await this.page.getByRole('button', { name: 'Sign in' }).click();
    await this.page.getByRole('navigation', { name: 'Main navigation' }).waitFor();
  }

  async leave(): Promise<void> {
    await this.context.close();
  }
}
