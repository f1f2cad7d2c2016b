import type { Fault } from '../api/failure';
import { m } from '../paraglide/messages';

/** What the server says of a field, in the console's language. It speaks English, to programs first. */

type Said = [pattern: RegExp, words: (...parts: string[]) => string];

const SAID: readonly Said[] = [
  [/^(is required|is missing|must not be null)$/, () => m.fault_missing()],
  [/^is already taken$/, () => m.fault_taken()],
  [/^must be an e-mail address$/, () => m.fault_email()],
  [/^must be (\d+) to (\d+) characters long$/, (min, max) => m.fault_length({ min, max })],
  [/^must be at most (\d+) characters long$/, (max) => m.fault_long({ max })],
  [/^must be from (-?\d+) to (-?\d+)$/, (min, max) => m.fault_between({ min, max })],
  [/^must be a number\b/, () => m.fault_number()],
  [/^must be a whole number, (\d+) to (\d+)$/, (min, max) => m.fault_between({ min, max })],
  [/^must be a string$/, () => m.fault_text()],
  [/^must be a boolean$/, () => m.fault_toggle()],
  [/^must be at most (\S+)$/, (max) => m.fault_most({ max })],
  [/^must be at least (\S+)$/, (min) => m.fault_least({ min })],
  [/^must be \{latitude, longitude\}/, () => m.fault_place()],
  [/^must match password$/, () => m.password_differs()],
  [/^(no such (organization|project|device|user)|must be an identifier|is not an identifier)$/, () => m.fault_gone()],
  [/^must lie in the future$/, () => m.fault_past()],
  [/^must be a fully qualified domain name$/, () => m.fault_domain()],
];

/** The words of one fault. What has none of ours is handed on as the server's. */
export function faultWords(message: string): string {
  for (const [pattern, words] of SAID) {
    const found = pattern.exec(message);
    if (found) return words(...found.slice(1));
  }
  return m.fault_other({ reason: message });
}

/** One fault with the name of its field; what is wrong with the whole has none. */
export function faultText({ field, message }: Fault): string {
  return field === 'body' ? faultWords(message) : `${inputWord(field)}: ${faultWords(message)}`;
}

/** How a field is called on the screen, where it has such a name. */
export function inputWord(field: string): string {
  switch (field) {
    case 'name':
      return m.name();
    case 'description':
      return m.description();
    case 'email':
      return m.email();
    case 'username':
      return m.username();
    case 'password':
      return m.password();
    case 'firstName':
      return m.first_name();
    case 'lastName':
      return m.last_name();
    case 'company':
      return m.company();
    case 'projectUuid':
      return m.project();
    case 'organizationId':
      return m.organization();
    default:
      return field;
  }
}

/** Whether nothing that somebody has typed is wrong: the page asked for something that there is not, as its address had it. */
export function isOfAddress(faults: readonly Fault[]): boolean {
  return faults.length > 0 && faults.every(({ field }) => /^(query|path|header)\./.test(field));
}
