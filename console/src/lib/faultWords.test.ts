import { afterEach, describe, expect, it } from 'vitest';
import { Failure } from '../api/failure';
import { overwriteGetLocale } from '../paraglide/runtime';
import { faultWords, inputWord, isOfAddress } from './faultWords';
import { failureText } from './refusals';
import { failureWords } from './words';

const refusal = (field: string, message: string) =>
  new Failure(400, 'the request has 1 invalid field(s)', [{ field, message }]);

describe('what the server refuses', () => {
  afterEach(() => overwriteGetLocale(() => 'en'));

  it('is told in the language of the console', () => {
    overwriteGetLocale(() => 'de');
    expect(faultWords('is required')).toBe('Das ist erforderlich.');
    expect(faultWords('must be 1 to 80 characters long')).toBe('1 bis 80 Zeichen.');
    expect(faultWords('is already taken')).toBe('Das ist bereits vergeben.');
    // What a setting may not be.
    expect(faultWords('must be at most 40')).toBe('Höchstens 40.');
    expect(faultWords('must be at least -3.5')).toBe('Mindestens -3.5.');
    expect(faultWords('must be a boolean')).toBe('Hier ist wahr oder falsch erforderlich.');
    expect(faultWords('must be {latitude, longitude}, within -90..90 and -180..180 degrees')).toMatch(
      /^Erforderlich sind ein Breitengrad/,
    );
    expect(inputWord('description')).toBe('Beschreibung');
    expect(refusal('name', 'is required').fault('name')).toBe('Das ist erforderlich.');
    expect(failureText(refusal('name', 'is required'))).toBe('Name: Das ist erforderlich.');
  });

  it('is a sentence, and what has no words here is marked as the server’s', () => {
    expect(failureWords(refusal('name', 'is odd'))).toBe('Some of the input is not valid.');
    expect(faultWords('is odd')).toBe('The server does not accept this: “is odd”.');
    overwriteGetLocale(() => 'de');
    expect(faultWords('is odd')).toBe('Der Server nimmt das nicht an: „is odd“.');
  });

  it('by an address that asks for what is not there is told so', () => {
    const failure = refusal('query.sortBy', 'must be one of name, createdAt');
    expect(isOfAddress(failure.fields)).toBe(true);
    expect(isOfAddress([...failure.fields, { field: 'name', message: 'is required' }])).toBe(false);
    expect(failureWords(failure)).toBe('The address of this page asks for something that does not exist.');
  });

  it('of a row within many is told with its field', () => {
    expect(failureText(new Failure(400, 'name: must be at most 80 characters long'))).toBe(
      'Name: At most 80 characters.',
    );
  });
});
