import { describe, expect, it } from 'vitest';
import { ExactNumber, doubleOf, isNumber, numberFrom, readAnswer, readExact, writeExact } from './exact';
import { brief, number } from './format';
import { leaves, tableOf } from './table';

const TEXT =
  '{"serial":9007199254740826123,"one":1.0,"zero":-0,"far":1e400,"plain":[1,2.5,-3,9007199254740993],"deep":{"n":571124000000000571124},"text":"1.0 \\" 2.0 \\\\","é\\"1.0":"\\u00e9"}';

describe('JSON', () => {
  it('keeps its numbers to the digit', () => {
    const read = readExact(TEXT);
    expect(writeExact(read)).toBe(TEXT.replace('\\u00e9', 'é'));
    expect(read).toMatchObject({ text: '1.0 " 2.0 \\', plain: [1, 2.5, -3, expect.any(ExactNumber)] });
    expect(writeExact(JSON.parse(TEXT)), 'as browsers do').not.toContain('826123');
    expect(writeExact(readExact('[1.0, 2]'), 2)).toBe('[\n  1.0,\n  2\n]');
    for (const text of ['7', '1.0', '"1.0"', 'null', '[]', ' { "a" : 1.50 } ']) {
      expect(writeExact(readExact(text)), text).toBe(text.replaceAll(' ', ''));
    }
    expect(writeExact(undefined)).toBe('null');
    expect(writeExact({ a: undefined, b: 1 })).toBe('{"b":1}');
  });

  it('is refused where it is none', () => {
    for (const text of ['01', '1.', '.5', '+1', '1.0.0', '1e', '-', '"1.0', '{"a":1.0', '1.0 1.0', '[1.0,]', '"\\']) {
      expect(() => readExact(text), text).toThrow(SyntaxError);
    }
  });

  it('has texts that look like numbers, and names of any kind', () => {
    const text = '{"__proto__":1.0,"1.0":"1.0","a\\\\":"b\\\\\\"2.0","":[{"x":2.0}]}';
    const read = readExact(text);
    expect(writeExact(read)).toBe(text);
    expect(Object.getPrototypeOf(read)).toBe(Object.prototype);
    expect(writeExact(readExact(`["${'1.0'.repeat(1_000_000)}"]`)).length).toBe(3_000_004);
  });

  it('of answers has doubles where the interface counts', () => {
    const answer = readAnswer(
      '{"data":[{"latitude":52.0,"payload":{"n":1.0},"fields":{"payload.temp":{"mean":21.0,"first":9007199254740993}}}],"meta":{"limit":10}}',
    ) as { data: { latitude: unknown; payload: unknown; fields: Record<string, unknown> }[] };
    expect(answer.data[0]?.latitude).toBe(52);
    expect(answer.data[0]?.fields['payload.temp']).toMatchObject({ mean: 21 });
    expect(writeExact(answer.data[0])).toContain('"payload":{"n":1.0}');
    expect(writeExact(answer.data[0])).toContain('"first":9007199254740993');
  });
});

describe('designs and dashboards', () => {
  it('have doubles throughout', () => {
    const answer = readAnswer('{"planes":{"a":{"value":1.0,"__proto__":{"x":2.0}}},"configuration":[{"value":3.0}]}');
    expect(JSON.stringify(answer)).toBe(
      '{"planes":{"a":{"value":1,"__proto__":{"x":2}}},"configuration":[{"value":3}]}',
    );
  });
});

describe('numbers', () => {
  it('calculate, and are shown as they were written', () => {
    const large = numberFrom('9007199254740826123');
    expect(isNumber(large) && isNumber(1) && !isNumber('1')).toBe(true);
    expect([doubleOf(large), doubleOf(2), doubleOf('2')]).toEqual([9007199254740826000, 2, undefined]);
    expect(`${large}`).toBe('9007199254740826123');
    expect(numberFrom('1.50')).toBeInstanceOf(ExactNumber);
    expect([numberFrom('1.5'), numberFrom('-7'), numberFrom('.5'), numberFrom('')]).toEqual([
      1.5,
      -7,
      undefined,
      undefined,
    ]);
    expect([number(numberFrom('9007199254740826') ?? 0, 'en'), brief(numberFrom('1.0'))]).toEqual([
      '9,007,199,254,740,826',
      '1.0',
    ]);
    expect(brief(readExact('{"a":571124000000000571124}'))).toBe('{"a":571124000000000571124}');
  });

  it('are leaves of payloads, and make columns of numbers', () => {
    const payload = readExact('{"temp":1.0,"door":{"n":9007199254740993}}');
    expect(leaves(payload).map(([path, value]) => `${path}=${brief(value)}`)).toEqual([
      'temp=1.0',
      'door.n=9007199254740993',
    ]);
    const value = { id: '1', createdAt: '1', deviceId: 'd', elementName: 'e', payload };
    expect(tableOf([value]).columns.every(({ isNumeric }) => isNumeric)).toBe(true);
  });

  it('stay in what other programs keep with an organization', () => {
    const text = '{"domainPublicConfiguration":{"limit":1.0,"id":9007199254740993},"id":"o"}';
    expect(writeExact(readAnswer(text))).toBe(text);
  });
});
