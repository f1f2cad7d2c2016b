import { Failure } from '../api/failure';
import { failureWords } from './words';

/** Why something was refused, on one line: the fields' faults where they say more. */
export function failureText(failure: Failure): string {
  const faults = failure.faults.map(({ field, message }) => `${field}: ${message}`);
  return faults.length > 0 ? faults.join('; ') : failureWords(failure);
}

const PLACED = /^\[(\d+)\](?:\.[^:]+)?:\s*(.*)$/s;

/** Which item a message of a bulk operation is about, as in `[3].value: must be a number`. */
export function placed(message: string): { index: number; text: string } | undefined {
  const [, index, text = ''] = PLACED.exec(message) ?? [];
  return index === undefined ? undefined : { index: Number(index), text };
}

/** A refusal of one item within an answer that was good as a whole. */
export function refused(message: string): Failure {
  return new Failure(400, message);
}
