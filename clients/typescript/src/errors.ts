/** A field of the input that the server refused. */
export interface FieldError {
  /** The path of the field in the input: `streetAddress.city`, `[3].name`, `query.limit`. */
  readonly field: string;
  readonly message: string;
}

/** Longest text of a message that an error carries, in characters. */
const MESSAGE_CHARACTERS_MAX = 1_000;

/**
 * Tells why a call failed: what the server answered, or that no usable answer came.
 *
 * It carries no request, so that no credential can reach a log by it.
 */
export class IsobarError extends Error {
  override readonly name = 'IsobarError';
  /** The status of the answer; 0 where none came. */
  readonly status: number;
  /** Every field that the server refused; empty where none is at fault. */
  readonly fields: readonly FieldError[];
  /** Names the request in the server's log. */
  readonly requestId: string | undefined;
  /** Seconds after which the server wants to be asked again. */
  readonly retryAfter: number | undefined;

  constructor(status: number, message: string, fields: readonly FieldError[] = [], headers?: Headers) {
    super(message.slice(0, MESSAGE_CHARACTERS_MAX));
    this.status = status;
    this.fields = fields;
    this.requestId = headers?.get('x-request-id') ?? undefined;
    this.retryAfter = secondsOf(headers?.get('retry-after') ?? null);
  }

  /** Returns what the server says of a field, if that is at fault. */
  field(name: string): string | undefined {
    return this.fields.find((fault) => fault.field === name)?.message;
  }

  /** Returns true if the same call may succeed later: no answer came, a rate limit, or a server that is overloaded. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

/** Returns the error that an answer tells of, whatever its body holds. */
export async function errorOf(response: Response): Promise<IsobarError> {
  const body: unknown = await response.json().catch(() => undefined);
  const { message = `the server answered ${response.status}`, fields } = refusalIn(body);
  return new IsobarError(response.status, message, fields, response.headers);
}

/** Reads what the body of a refusal says, in the server's one shape of errors; without a message where it is of another shape. */
export function refusalIn(body: unknown): { message: string | undefined; fields: FieldError[] } {
  const { message, errors } = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  return {
    message: typeof message === 'string' ? message : undefined,
    fields: Array.isArray(errors) ? errors.filter(isFieldError) : [],
  };
}

/** Returns any failure on the way of a call as an error of this library. */
export function asError(error: unknown): IsobarError {
  if (error instanceof IsobarError) return error;
  // A parser quotes what it could not read, which may be a secret.
  if (error instanceof SyntaxError) return new IsobarError(0, 'the answer is no JSON');
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return new IsobarError(0, `no answer came: ${cause instanceof Error ? cause.message : String(cause)}`);
}

function isFieldError(item: unknown): item is FieldError {
  const fault = item as Partial<FieldError> | null;
  return typeof fault?.field === 'string' && typeof fault.message === 'string';
}

/** Reads a number of seconds or a date, as RFC 9110 has both. */
function secondsOf(header: string | null): number | undefined {
  if (header === null) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1_000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
