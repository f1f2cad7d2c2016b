import { untrack } from 'svelte';
import { connection } from '../api/connection.svelte';
import { type Failure, asFailure, isAbort } from '../api/failure';

/** What a page reads from the server: its value, or why there is none. */
export interface Resource<T> {
  /** The newest value. It stays while it is read again, so that nothing flickers. */
  readonly value: T | undefined;
  readonly failure: Failure | undefined;
  /** Whether it is being read. */
  readonly loading: boolean;
  /** Reads it again. */
  reload(): void;
  /** Puts a value that is known to be newer. */
  set(value: T): void;
}

/**
 * Reads something now, and again whenever state changes that `read` looks at before it first waits. Call it while a component is
 * made. An older answer never replaces a newer one.
 */
export function resource<T>(read: (signal: AbortSignal) => Promise<T>): Resource<T> {
  let value = $state.raw<T>();
  let failure = $state.raw<Failure>();
  let loading = $state(true);
  let turn = $state(0);
  $effect(() => {
    void turn;
    const stop = new AbortController();
    loading = true;
    read(stop.signal).then(
      (read) => {
        if (stop.signal.aborted) return;
        value = read;
        failure = undefined;
        loading = false;
      },
      (error: unknown) => {
        if (stop.signal.aborted || isAbort(error)) return;
        failure = asFailure(error);
        loading = false;
      },
    );
    return () => stop.abort();
  });
  // What could not be read without a connection is read as soon as it is back.
  $effect(() =>
    connection.onReturn(() => {
      if (failure?.mayPass) turn += 1;
    }),
  );
  return {
    get value() {
      return value;
    },
    get failure() {
      return failure;
    },
    get loading() {
      return loading;
    },
    // An effect that has something read again does not depend on how often it was.
    reload: () => {
      turn = untrack(() => turn) + 1;
    },
    set: (newer) => {
      value = newer;
      failure = undefined;
    },
  };
}

/** What a form or a button does at the server: once at a time, and why it failed. */
export interface Action<A extends unknown[]> {
  readonly running: boolean;
  readonly failure: Failure | undefined;
  /** True when it succeeded. A call while one is under way does nothing. */
  run(...input: A): Promise<boolean>;
  clear(): void;
}

export function action<A extends unknown[]>(act: (...input: A) => Promise<void>): Action<A> {
  let running = $state(false);
  let failure = $state.raw<Failure>();
  return {
    get running() {
      return running;
    },
    get failure() {
      return failure;
    },
    async run(...input) {
      if (running) return false;
      running = true;
      failure = undefined;
      try {
        await act(...input);
        return true;
      } catch (error) {
        if (!isAbort(error)) failure = asFailure(error);
        return false;
      } finally {
        running = false;
      }
    },
    clear: () => {
      failure = undefined;
    },
  };
}

/** One after the other: what is asked for while another is under way waits for it, so that nothing is lost of whoever is quick. */
export function inTurn<T>(): (act: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (act) => {
    const now = last.then(act, act);
    last = now;
    return now;
  };
}
