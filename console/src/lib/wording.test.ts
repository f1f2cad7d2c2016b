import { describe, expect, it } from 'vitest';

const FILES = import.meta.glob<Record<string, unknown>>('../../messages/*/*.json', { eager: true, import: 'default' });

/** All texts of a language, each with the file that it is in. */
function texts(language: string): string[] {
  return Object.entries(FILES)
    .filter(([path]) => path.includes(`/${language}/`))
    .flatMap(([path, messages]) =>
      Object.entries(messages).map(([key, text]) => `${path} ${key}: ${JSON.stringify(text)}`),
    );
}

describe('wording', () => {
  it('calls a thing by one word in German', () => {
    const other = /\b(Designs?|Vorgabe|Nutzlast|Tafeln?|Schlagwort|Knopf|freiwillig)\b/;
    expect(texts('de').length).toBeGreaterThan(1_000);
    expect(texts('de').filter((text) => other.test(text))).toEqual([]);
  });

  it('says in English what something is not as one says it', () => {
    expect(texts('en').filter((text) => /\b(This|It|text|value|file|”|\}) is no [a-z]/.test(text))).toEqual([]);
  });
});
