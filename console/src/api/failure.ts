import { IsobarError, refusalIn } from 'isobar-client/errors';
import { faultWords } from '../lib/faultWords';

/** What can go wrong with a call, in a shape that every screen can show. */

/** A fault of one field of the input, as the server names it. */
export type { FieldError as Fault } from 'isobar-client/errors';

/** The status of what failed by a fault of the console itself. */
export const OWN_FAULT = -1;

/** A call that did not succeed: an error of the client, with what pages ask of it. */
export class Failure extends IsobarError {
  /** The fault of a field, in the words of the console, if it has one. */
  fault(name: string): string | undefined {
    const message = this.field(name);
    return message === undefined ? undefined : faultWords(message);
  }

  /** Whether it is gone or not for this user: asking again, nothing else comes. */
  get isRefusal(): boolean {
    return this.status === 403 || this.status === 404;
  }

  /** Whether the same call may succeed later without a change. */
  get mayPass(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Whether a call was given up on purpose. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** Any thrown thing as a failure. What is none, and not given up on purpose, is a fault of the console, which the browser is told. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof IsobarError) return new Failure(error.status, error.message, error.fields);
  if (isAbort(error)) return new Failure(0, textOf(error));
  globalThis.reportError?.(error);
  return new Failure(OWN_FAULT, textOf(error));
}

/** Gives what comes over the network; whatever goes wrong on the way means that no answer came. @throws Failure */
export async function arrived<T>(coming: Promise<T>): Promise<T> {
  try {
    return await coming;
  } catch (error) {
    if (isAbort(error)) throw error;
    throw error instanceof IsobarError ? asFailure(error) : new Failure(0, textOf(error));
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The failure that an answer tells of, read from the server's one shape of errors. */
export async function failureOf(response: Response): Promise<Failure> {
  let body: unknown;
  try {
    body = await response.clone().json();
  } catch {
    body = undefined;
  }
  return failureFrom(response, body);
}

/** The same, where the body was read already. */
export function failureFrom(response: Response, body: unknown): Failure {
  const { message = response.statusText, fields } = refusalIn(body);
  return new Failure(response.status, message, fields, response.headers);
}
