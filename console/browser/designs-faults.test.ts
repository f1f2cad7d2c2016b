import { describe, expect, it } from 'vitest';
import { designers } from './canvas';
import { DESK, Visitor } from './pages';
import { browser, fleet, server } from './stage';

designers();

const link = (element: string, ability: string, more: object = {}): object => ({ element, ability, ...more });
/** Every kind of fault that a design can have while it is worked on. */
const WRONG = {
  in: {
    type: 'deviceEvent',
    properties: { integration: 'mqtt' },
    triggers: {
      eventReceived: [
        link('nowhere', 'store'),
        link('out', 'send'),
        link('out', 'store', { arguments: { valeu: 1, value: 'foo(1)' } }),
      ],
      sent: [],
    },
  },
  out: { type: 'storage', properties: { retentionDays: 0, valuesMax: 1.5 } },
  fridge: { type: 'fridge' },
  high: { type: 'condition', properties: { expression: 'payload.temp >' } },
  odd: { type: 'transform', properties: { expression: 'payload.temp + for' } },
  names: { type: 'transform', properties: { expression: 'paylod.temp' } },
  key: { type: 'changed', properties: { expression: 'settings.nothing' } },
  member: { type: 'changed', properties: { expression: 'device.nme' } },
  number: { type: 'transform', properties: { expression: 5 } },
  none: { type: 'condition' },
  slow: { type: 'throttle', properties: { minutes: '5' } },
  often: { type: 'interval', properties: { minutes: 600_000 } },
  both: { type: 'window', properties: { aggregate: 'median', size: 3, minutes: 3 } },
  neither: { type: 'window', properties: { aggregate: 'sum' } },
  tell: { type: 'notification', properties: { message: 'a {{ payload', minimumRole: 'boss' } },
  call: {
    type: 'http',
    properties: { url: 'http://a b', method: 'FETCH', headers: { Host: "'b'", 'a b': "'c'", x: [] } },
  },
  get: { type: 'http', properties: { url: 'https://a', method: 'GET', body: {} } },
  decode: { type: 'function', properties: { code: 'var x = 1', bytesEncoding: 'octal', bytesRef: '$..x' } },
  limit: {
    type: 'deviceSetting',
    properties: {
      title: 5,
      inputType: 'number',
      inputTypeProperties: { min: 2, max: 1 },
      defaultValue: 'a',
      listOrder: 1.5,
    },
  },
  history: { type: 'deviceSetting' },
};
const ENGLISH =
  /\b(must|have|is|are|of|the|at most|unknown|takes?|no|not|cannot|be|has|there|expecting|required|one)\b/;

/** What the server finds wrong with a design. */
async function refused(elements: object): Promise<{ field: string; message: string }[]> {
  const project = await fleet.project('Judge', {});
  const body = { elementName: 'in', payload: {}, specification: { planes: { cloud: { elements } } } };
  const answer: unknown = await fleet
    .call('POST', `/projects/${project}/specification/test`, body)
    .catch((error: unknown) => error);
  const [, json = '{}'] = /: 400 (.*)$/s.exec((answer as Error).message) ?? [];
  return (JSON.parse(json) as { errors: { field: string; message: string }[] }).errors;
}

describe('the faults of a design', () => {
  it('are told in the language of the console, each that the server finds', async () => {
    const faults = await refused(WRONG);
    expect(faults.length).toBeGreaterThan(30);
    const german = await Visitor.come(browser, server.url, { ...DESK, locale: 'de-DE' });
    const { page } = german;
    const project = await fleet.project('Falsch', {});
    await german.open(`/projects/${project}/design`);
    await page.getByRole('region', { name: 'Zeichenfläche' }).waitFor();
    await page.getByRole('button', { name: 'JSON', exact: true }).first().click();
    const text = page.getByRole('textbox', { name: 'Der Entwurf als JSON' });
    await text.click();
    await page.keyboard.press('Control+a');
    const judged = page.waitForResponse(
      (response) => response.url().endsWith('/specification/test') && response.status() === 400,
    );
    await page.keyboard.insertText(JSON.stringify({ name: 'Falsch', planes: { cloud: { elements: WRONG } } }));
    await judged;
    const told = page.getByRole('complementary', { name: 'Eigenschaften' }).locator('.faults li .soft');
    await expect.poll(() => told.count()).toBe(faults.length);
    for (const words of await told.allInnerTexts()) {
      expect(words.replace(/\w+\([^)]*\)/g, '')).not.toMatch(ENGLISH);
      expect(words).not.toMatch(/Server nimmt/);
    }
    await german.leave();
  });
});
