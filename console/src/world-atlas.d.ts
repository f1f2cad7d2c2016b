/** The shapes of land and countries; read as what they are, not as the thousands of literals that they hold. */
declare module 'world-atlas/countries-110m.json' {
  const atlas: import('topojson-specification').Topology;
  export default atlas;
}
declare module 'world-atlas/countries-50m.json' {
  const atlas: import('topojson-specification').Topology;
  export default atlas;
}
