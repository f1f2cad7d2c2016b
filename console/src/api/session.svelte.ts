import { ownerOf } from 'isobar-client/tokens';
import { type User, api, done, hooks, open, tokens } from './client';
import { connection } from './connection.svelte';
import { asFailure, type Failure } from './failure';
import { hasVisited, keepVisit, mayGoOn } from '../lib/visits';

/** Other tabs hear of a sign-out here. */
const channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('isobar-session');

type State = 'starting' | 'out' | 'in' | 'unreachable';

/** Who is signed in. There is one session, for the whole page. */
class Session {
  state = $state<State>('starting');
  user = $state.raw<User | null>(null);
  /** Why the server could not be asked at the start. */
  failure = $state.raw<Failure | null>(null);
  /** Whether the session ended by itself, so that the sign-in page can say so. */
  hasExpired = $state(false);
  /** Resolves when somebody is signed in; at once in a browser where somebody was before, for then it is likely. */
  readonly expected: Promise<void>;
  #expect: () => void = () => undefined;

  constructor() {
    this.expected = new Promise((resolve) => (this.#expect = resolve));
    if (hasVisited()) this.#expect();
    hooks.ended = () => this.#end(true);
    hooks.renewed = (token) => {
      // Somebody else has signed in in another tab, and the browser has one session: nothing of the other user stays here.
      if (this.user && ownerOf(token) !== this.user.id) location.reload();
    };
    connection.onReturn(() => {
      if (this.state === 'unreachable') void this.resume();
    });
    channel?.addEventListener('message', (message) => {
      if (message.data === 'signed-out' && this.state === 'in') this.#end(false);
    });
  }

  /** Looks whether a session of an earlier visit goes on. */
  async resume(): Promise<void> {
    this.failure = null;
    if (!mayGoOn()) {
      this.state = 'out';
      return;
    }
    try {
      if ((await tokens.current()) === null) this.#leave();
      else await this.#enter();
    } catch (error) {
      this.failure = asFailure(error);
      if (this.failure.status === 401) this.#leave();
      else this.state = 'unreachable';
    }
  }

  /** @throws Failure */
  async signIn(usernameOrEmail: string, password: string): Promise<void> {
    tokens.set(await done(open.POST('/v2/auth/login', { body: { usernameOrEmail, password } })));
    await this.#enter();
  }

  /** Has what comes after the sign-in page fetched: somebody is about to sign in. */
  foresee(): void {
    this.#expect();
  }

  /** Ends the session here, at the server and in other tabs. It ends here even when the server cannot be asked. */
  async signOut(): Promise<void> {
    try {
      await api.POST('/v2/auth/logout');
    } catch {
      // The token ends by itself within minutes.
    }
    channel?.postMessage('signed-out');
    this.#end(false);
  }

  /** Takes the user as it is after a change. */
  changed(user: User): void {
    if (this.user?.id === user.id) this.user = user;
  }

  async #enter(): Promise<void> {
    this.user = await done(api.GET('/v2/auth/user'));
    this.hasExpired = false;
    this.state = 'in';
    this.#expect();
    keepVisit('open');
  }

  /** There is no session any more: the next visit begins with signing in. */
  #leave(): void {
    keepVisit('ended');
    this.state = 'out';
  }

  #end(byItself: boolean): void {
    tokens.set(null);
    this.user = null;
    this.hasExpired = byItself;
    this.#leave();
  }
}

export const session = new Session();
