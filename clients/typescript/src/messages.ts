import { IsobarError, asError } from './errors.js';
import { unlessAborted } from './pause.js';

/** A message of a stream of server-sent events. One without data has an id to resume behind, and nothing to show. */
export interface Message {
  event: string;
  id: string;
  data: string;
}

/** Longest message, in characters: the server's are far shorter. */
const MESSAGE_CHARACTERS_MAX = 16 * 1024 * 1024;

/** The server says something every 15 seconds: a stream that is silent for longer has lost its connection unheard. */
const SILENCE_MS = 45_000;

/** Yields the messages of a stream until its end. @throws IsobarError for a break, or silence; the reason when `signal` aborts */
export async function* messagesOf(
  body: ReadableStream<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Message, void> {
  const reader = new MessageReader();
  const decoder = new TextDecoder();
  const source = body.getReader();
  try {
    for (;;) {
      const read = unlessAborted(within(SILENCE_MS, source.read()), signal);
      const { value, done } = await read.catch((error: unknown) => {
        throw signal.aborted ? error : asError(error);
      });
      if (done) return;
      yield* reader.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    void source.cancel().catch(() => undefined);
  }
}

/** Returns what a promise gives within this time. @throws IsobarError after it */
function within<T>(milliseconds: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new IsobarError(0, 'the stream fell silent')), milliseconds);
    void promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Takes a stream of server-sent events apart, however its bytes are cut. */
export class MessageReader {
  #rest = '';
  #event = '';
  #id = '';
  #hasId = false;
  #data: string[] = [];
  #characters = 0;

  /** Returns the messages that are whole with this piece of text. @throws IsobarError for one that does not end */
  push(text: string): Message[] {
    this.#characters += text.length;
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    const messages: Message[] = [];
    for (const line of lines) {
      const message = this.#line(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (message) messages.push(message);
      if (line === '' || line === '\r') this.#characters = this.#rest.length;
    }
    if (this.#characters > MESSAGE_CHARACTERS_MAX) throw new IsobarError(0, 'a message of the stream is too long');
    return messages;
  }

  #line(line: string): Message | null {
    if (line === '') {
      const message = { event: this.#event || 'message', id: this.#id, data: this.#data.join('\n') };
      const isWhole = this.#data.length > 0 || this.#hasId;
      this.#event = '';
      this.#hasId = false;
      this.#data = [];
      return isWhole ? message : null;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#event = value;
    else if (field === 'id') {
      this.#id = value;
      this.#hasId = true;
    } else if (field === 'data') this.#data.push(value);
    return null;
  }
}
