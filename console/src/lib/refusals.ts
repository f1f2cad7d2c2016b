import { Failure } from '../api/failure';
import { faultText } from './faultWords';
import { failureWords } from './words';

/** A message of one item of many, with its field where it names one: `name: is required`. */
const OF_FIELD = /^([\w.]+): (.+)$/s;

/** Why something was refused, on one line: the fields' faults where they say more. */
export function failureText(failure: Failure): string {
  if (failure.fields.length > 0) return failure.fields.map(faultText).join('; ');
  const [, field, message] = (failure.status === 400 && OF_FIELD.exec(failure.message)) || [];
  return field && message ? faultText({ field, message }) : failureWords(failure);
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
