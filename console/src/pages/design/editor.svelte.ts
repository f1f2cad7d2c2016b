import {
  type DryRunInput,
  type StoredDesign,
  dryRun,
  isOutdated,
  readSpecification,
  writeSpecification,
} from '../../api/designs';
import { Failure, type Fault, asFailure } from '../../api/failure';
import { check } from '../../lib/design/check';
import { type Clip, copy, paste } from '../../lib/design/clip';
import { type Draft, dropDraft, keepDraft, readDraft } from '../../lib/design/draft';
import { isStart } from '../../lib/design/elements';
import { designFaultWords } from '../../lib/design/faultWords';
import { type History, begin, commit, redo, seal, undo } from '../../lib/design/history';
import { positions } from '../../lib/design/layout';
import * as model from '../../lib/design/model';
import type { Design, LinkPlace, Point } from '../../lib/design/model';
import { type FaultPlace, placeOf } from '../../lib/design/places';
import { type Walk, follow, keyOf } from '../../lib/design/trace';
import { action } from '../../lib/resource.svelte';
import { checkWords } from './words';

/** The server looks at the design when nobody has changed it for so long. */
const CHECKED_AFTER_MS = 500;
/** Unsaved work is put into the browser's storage so soon. */
const KEPT_AFTER_MS = 200;
/** What the server names a dry run's design. */
const TRIED = 'specification.';

export interface PlacedFault extends FaultPlace {
  field: string;
  message: string;
}

/** What a dry run has shown. */
export interface Trial {
  walks: readonly Walk[];
  effects: Awaited<ReturnType<typeof dryRun>>['effects'];
  errors: Awaited<ReturnType<typeof dryRun>>['errors'];
}

/** What is chosen on the canvas. */
export interface Selection {
  names: readonly string[];
  links: readonly LinkPlace[];
}

const NOTHING: Selection = { names: [], links: [] };

export interface Rights {
  mayWrite: boolean;
  mayTry: boolean;
}

/** A design under work: what it is, what the server has, what is wrong with it, and what is not saved. */
export class Editor {
  #history: History<Design> = $state.raw(begin(model.emptyDesign('')));
  /** The design that the changes are made of, as the server has it, and its tag. */
  #base: Design = $state.raw(model.emptyDesign(''));
  #etag = $state.raw<string | null>(null);
  /** The server's faults, and the design that they are of. */
  #judged = $state.raw<{ design: Design; faults: readonly Fault[] }>();
  #timers: Record<'check' | 'keep', ReturnType<typeof setTimeout> | undefined> = { check: undefined, keep: undefined };
  #checking: AbortController | undefined;
  /** Whether this editor has put its work into the browser's storage, or found it there. */
  #hasDraft = false;

  note = $state('');
  selection = $state.raw<Selection>(NOTHING);
  trial = $state.raw<Trial | null>(null);
  /** The step of the trial that is pointed out. */
  step = $state<number | null>(null);
  /** Somebody else's newer version, which stopped a save. */
  conflict = $state.raw<StoredDesign | null>(null);
  /** Whether somebody else is known to have saved a newer version. */
  isBehind = $state(false);
  /** Work of an earlier visit that was found in the browser. */
  found = $state.raw<Draft | null>(null);
  /** Whether the browser keeps unsaved work. */
  isKept = $state(true);
  /** JSON that is being typed and cannot be shown: the canvas waits for it. */
  isTextBroken = $state(false);
  /** JSON as it was typed; null where that of the design is shown. */
  text = $state.raw<string | null>(null);
  /** Whether the console looks for faults by itself. It begins once the design is on the screen. */
  isLooking = $state(false);
  savedAt = $state<string | null>(null);
  readonly cut: readonly string[];

  design = $derived(this.#history.now);
  canUndo = $derived(this.#history.past.length > 0);
  canRedo = $derived(this.#history.future.length > 0);
  isDirty = $derived(this.isTextBroken || !model.equal(this.#history.now, this.#base));
  faults: readonly PlacedFault[] = $derived.by(() => this.#allFaults());
  places: ReadonlyMap<string, Point> = $derived(positions(this.#history.now));

  constructor(
    readonly project: string,
    private readonly user: string,
    readonly rights: Rights,
    stored: StoredDesign,
  ) {
    this.#history = begin(stored.design);
    this.#base = stored.design;
    this.#etag = stored.etag;
    this.cut = stored.cut;
    if (!rights.mayWrite) return;
    const draft = readDraft(user, project);
    if (draft && (draft.text !== null || !model.equal(draft.design, stored.design))) {
      this.found = draft;
      this.#hasDraft = true;
      this.text = draft.text;
      this.isTextBroken = draft.text !== null;
      this.note = draft.note;
      this.#history = commit(this.#history, draft.design);
      this.#base = draft.base ?? stored.design;
      // What the draft was made of decides whether it may replace what is there now.
      this.#etag = draft.etag ?? stored.etag;
      this.isBehind = draft.etag !== null && draft.etag !== stored.etag;
    } else if (draft) dropDraft(user, project);
  }

  /** Whether it may be changed now. */
  get isWritable(): boolean {
    return this.rights.mayWrite && !this.isTextBroken;
  }

  get base(): Design {
    return this.#base;
  }

  /** Makes `next` the design. Changes with the same `key` that come after each other are one step. */
  commit(next: Design, key: string | null = null): void {
    if (!this.rights.mayWrite || next === this.design) return;
    this.#put(commit(this.#history, next, key));
  }

  undo(): void {
    if (this.isWritable) this.#put(undo(this.#history));
  }

  redo(): void {
    if (this.isWritable) this.#put(redo(this.#history));
  }

  /** The next change is a step of its own. */
  seal(): void {
    this.#history = seal(this.#history);
  }

  #put(history: History<Design>): void {
    this.#history = history;
    this.#dropLost();
    this.keepSoon();
    this.checkSoon();
  }

  keepSoon(): void {
    clearTimeout(this.#timers.keep);
    this.#timers.keep = setTimeout(() => this.keep(), KEPT_AFTER_MS);
  }

  /** What is no longer there is not chosen any more, and a trial of another design is over. */
  #dropLost(): void {
    const { names, links } = this.selection;
    const left = names.filter((name) => model.elementOf(this.design, name));
    const leftLinks = links.filter((place) => model.linkAt(this.design, place));
    if (left.length < names.length || leftLinks.length < links.length)
      this.selection = { names: left, links: leftLinks };
    if (!this.trial) return;
    const again = follow(
      this.design,
      this.trial.walks.map(({ step }) => step),
    );
    const isSame = again.every((walk, index) => walk.before === this.trial?.walks[index]?.before);
    if (!isSame) this.endTrial();
  }

  select(names: readonly string[], links: readonly LinkPlace[] = []): void {
    const isSame =
      model.equal([...names].sort(), [...this.selection.names].sort()) &&
      model.equal(links.map(keyOf).sort(), this.selection.links.map(keyOf).sort());
    if (isSame) return;
    this.seal();
    this.selection = { names, links };
  }

  /** Fixes where everything stands: from the first thing that somebody places, nothing moves by itself. */
  #placed(): Design {
    return model.setPositions(this.design, this.places);
  }

  add(type: string, at: Point): string {
    const { design, name } = model.addElement(this.#placed(), type, { x: Math.round(at.x), y: Math.round(at.y) });
    this.commit(design);
    this.select([name]);
    return name;
  }

  move(to: ReadonlyMap<string, Point>, key: string | null = null): void {
    this.commit(model.setPositions(this.#placed(), to), key);
  }

  removeSelected(): void {
    const { names, links } = this.selection;
    const without = model.disconnect(this.design, links);
    this.commit(names.length > 0 ? model.removeElements(without, names) : without);
  }

  paste(clip: Clip): void {
    const { design, names } = paste(this.#placed(), clip, { x: 32, y: 32 });
    this.commit(design);
    this.select(names);
  }

  copied(): Clip | null {
    const { names } = this.selection;
    return names.length > 0 ? copy(this.#placed(), names) : null;
  }

  /** Writes unsaved work into the browser's storage, or takes it out when there is none. */
  keep(): void {
    clearTimeout(this.#timers.keep);
    if (!this.rights.mayWrite) return;
    if (!this.isDirty) {
      // What another tab keeps is not for this one to drop.
      if (this.#hasDraft) dropDraft(this.user, this.project);
      this.#hasDraft = false;
      return;
    }
    this.#hasDraft = true;
    this.isKept = keepDraft(this.user, this.project, {
      design: this.design,
      base: this.#base,
      etag: this.#etag,
      note: this.note,
      text: this.isTextBroken ? this.text : null,
      at: new Date().toISOString(),
    });
  }

  /** Back to what the server has. One step, which can be taken back. */
  discard(): void {
    this.found = null;
    this.text = null;
    this.isTextBroken = false;
    this.#put(commit(this.#history, this.#base));
    this.keep();
  }

  /** Takes a design of the server as what the next changes are made of. `design` is what is worked on from then on. */
  rebase(stored: StoredDesign, design: Design): void {
    this.#base = stored.design;
    this.#etag = stored.etag;
    this.conflict = null;
    this.isBehind = false;
    this.#put(commit(this.#history, design));
    this.keep();
  }

  readonly saving = action(async () => {
    this.seal();
    const sent = this.design;
    try {
      const etag = await this.#tag();
      if (etag !== null) await this.#write(sent, etag);
    } catch (error) {
      const failure = asFailure(error);
      if (failure.status === 412) {
        this.isBehind = true;
        this.conflict = await readSpecification(this.project);
        return;
      }
      if (failure.status === 400) this.#judged = { design: sent, faults: failure.fields };
      throw failure;
    } finally {
      this.keep();
    }
  });

  /** The tag of what the changes are made of; null where somebody has saved since. After a save whose tag could not be read it is asked for again. */
  async #tag(): Promise<string | null> {
    if (this.#etag !== null) return this.#etag;
    const stored = await readSpecification(this.project);
    if (!model.equal(stored.design, this.#base)) {
      this.isBehind = true;
      this.conflict = stored;
      return null;
    }
    // Without one, what somebody else has saved could be overwritten unseen.
    if (stored.etag === null) throw new Failure(500, 'the server has not said which version this is');
    return stored.etag;
  }

  async #write(sent: Design, etag: string): Promise<void> {
    await writeSpecification(this.project, sent, this.note.trim(), etag);
    this.#base = sent;
    this.#etag = null;
    this.note = '';
    this.found = null;
    this.isBehind = false;
    this.savedAt = new Date().toISOString();
    this.#judged = { design: sent, faults: [] };
    // The answer to a save has no tag. Should somebody have saved since, theirs is newer than this.
    try {
      const stored = await readSpecification(this.project);
      if (model.equal(stored.design, sent)) this.#etag = stored.etag;
      else this.isBehind = true;
    } catch {
      // It is asked for again before the next save.
    }
  }

  /** Reads what somebody else has saved, so that it can be compared. */
  readonly comparing = action(async () => {
    const stored = await readSpecification(this.project);
    if (this.isDirty) this.conflict = stored;
    else this.rebase(stored, stored.design);
  });

  /** Asks whether somebody else has saved. */
  async look(): Promise<void> {
    const etag = this.#etag;
    if (etag === null || this.saving.running) return;
    try {
      const isBehind = await isOutdated(this.project, etag);
      if (this.#etag === etag) this.isBehind = isBehind;
    } catch {
      // It is looked again.
    }
  }

  /** Has the server judge the design once nobody has changed it for a moment. */
  checkSoon(): void {
    clearTimeout(this.#timers.check);
    if (this.rights.mayTry) this.#timers.check = setTimeout(() => void this.#check(), CHECKED_AFTER_MS);
  }

  async #check(): Promise<void> {
    this.#checking?.abort();
    this.#checking = new AbortController();
    const design = this.design;
    const start = Object.entries(model.elementsOf(design)).find(([, { type }]) => isStart(type))?.[0] ?? 'none';
    const body = { elementName: start, payload: {}, specification: { planes: design.planes } };
    try {
      await dryRun(this.project, body, this.#checking.signal);
      this.#judged = { design, faults: [] };
    } catch (error) {
      const failure = asFailure(error);
      if (failure.status !== 400) return;
      const ofDesign = failure.fields.filter(({ field }) => field.startsWith(TRIED));
      const faults = ofDesign.map(({ field, message }) => ({ field: field.slice(TRIED.length), message }));
      this.#judged = { design, faults };
    }
  }

  readonly trying = action(async (elementName: string, payload: DryRunInput['payload'], device: string | null) => {
    const { design } = this;
    const body = {
      elementName,
      payload,
      specification: { planes: design.planes },
      ...(device ? { device } : {}),
    };
    try {
      const { trace, effects, errors } = await dryRun(this.project, body);
      this.trial = { walks: follow(design, trace), effects, errors };
      this.step = null;
    } catch (error) {
      this.endTrial();
      throw error;
    }
  });

  endTrial(): void {
    this.trial = null;
    this.step = null;
  }

  /** The server's faults where they still hold, and what the console sees by itself. */
  #allFaults(): PlacedFault[] {
    const { design } = this;
    const judged = this.#judged;
    const isWhole = judged !== undefined && judged.design === design;
    const told = (judged?.faults ?? []).filter(({ field }) => {
      const { element } = placeOf(design, field);
      if (isWhole || element === undefined) return isWhole;
      return model.elementOf(design, element) === model.elementOf(judged?.design ?? design, element);
    });
    const seen =
      isWhole || !this.isLooking
        ? []
        : check(design).map((fault) => ({ field: fault.field, message: checkWords(fault) }));
    const fields = new Set(told.map(({ field }) => field));
    const said = told.map((fault) => ({ field: fault.field, message: designFaultWords(fault) }));
    return [...said, ...seen.filter(({ field }) => !fields.has(field))].map((fault) => ({
      ...fault,
      ...placeOf(design, fault.field),
    }));
  }

  /** The fault of a property, of an argument, or of anything else by its field. */
  faultOf(test: (fault: PlacedFault) => boolean): string | undefined {
    return this.faults.find(test)?.message;
  }

  close(): void {
    clearTimeout(this.#timers.check);
    this.#checking?.abort();
    this.keep();
  }
}
