/** What can be said of a registration before the server is asked: all of it at once, each fault at its field. */

export const PASSWORD_MIN = 6;
export const PASSWORD_MAX = 20;

export interface Registration {
  firstName: string;
  lastName: string;
  company: string;
  email: string;
  username: string;
  password: string;
}

export type RegistrationFault = 'missing' | 'email' | 'short';

/** The faults by field; none when it may be sent. Whether names are taken, the server knows. */
export function registrationFaults(input: Registration): Partial<Record<keyof Registration, RegistrationFault>> {
  const faults: Partial<Record<keyof Registration, RegistrationFault>> = {};
  for (const field of Object.keys(input) as (keyof Registration)[]) {
    if (input[field].trim() === '') faults[field] = 'missing';
  }
  if (!faults.email && !/^[^\s@]+@[^\s@]+$/.test(input.email.trim())) faults.email = 'email';
  if (!faults.password && [...input.password].length < PASSWORD_MIN) faults.password = 'short';
  return faults;
}
