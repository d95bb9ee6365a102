// Search in a site that is read from the disk. Browsers start no Worker from file://, so the theme's search runs in a
// hidden frame instead. The plugin `offline` would load a shim of this kind from elsewhere; this one is our own.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.document.open();
      inside.document.close();
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script");
          script.onload = loaded;
          script.onerror = () => failed(new Error(`cannot load ${source}`));
          script.src = new URL(source, document.baseURI);
          inside.document.body.append(script);
        });
      // What the script expects of a worker: messages out, and further scripts one after the other.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
