((globals, warn) => {
  const all = Promise.all.bind(Promise);
  const text = (error) => {
    try {
      return error instanceof Error ? error.message : String(error);
    } catch {
      return "with what cannot be shown";
    }
  };
  globals.parallel = async (thunks) => {
    if (!Array.isArray(thunks)) throw new TypeError("parallel(thunks): give a list of functions");
    return all(thunks.map(async (thunk, place) => {
      try {
        return await (typeof thunk === "function" ? thunk() : thunk);
      } catch (error) {
        warn(`parallel: number ${place} failed: ${text(error)}`);
        return null;
      }
    }));
  };
  globals.pipeline = async (items, ...stages) => {
    if (!Array.isArray(items)) throw new TypeError("pipeline(items, ...stages): give a list of items first");
    const odd = stages.findIndex((stage) => typeof stage !== "function");
    if (odd >= 0) throw new TypeError(`pipeline(items, ...stages): stage number ${odd} is no function`);
    return all(items.map(async (item, place) => {
      let value = item;
      try {
        for (const stage of stages) value = await stage(value, item, place);
        return value;
      } catch (error) {
        warn(`pipeline: item ${place} failed: ${text(error)}`);
        return null;
      }
    }));
  };
})
