/** What is dragged from the palette onto the canvas: the type of an element. */
export const ELEMENT_DRAG = 'application/x-isobar-element';
