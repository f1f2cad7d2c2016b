import { describe, expect, it } from 'vitest';
import { registrationFaults } from './registration';

const GOOD = {
  firstName: 'Nora',
  lastName: 'Frei',
  company: 'Frei Storage',
  email: 'nora@example.com',
  username: 'nora',
  password: 'north-wind-3',
};

describe('a registration', () => {
  it('without faults is sent', () => {
    expect(registrationFaults(GOOD)).toEqual({});
  });

  it('has all its faults told at once, each at its field', () => {
    const input = { ...GOOD, firstName: ' ', company: '', email: 'nora at example.com', password: 'north' };
    expect(registrationFaults(input)).toEqual({
      firstName: 'missing',
      company: 'missing',
      email: 'email',
      password: 'short',
    });
  });

  it('tells of what is empty that it is missing, and no more', () => {
    expect(registrationFaults({ ...GOOD, email: '', password: '' })).toEqual({ email: 'missing', password: 'missing' });
  });
});
