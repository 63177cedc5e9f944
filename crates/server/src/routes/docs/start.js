// Shows the document of this very server. What is pasted under "Authorize" stays in this page until it is left.
window.onload = () => {
  window.ui = SwaggerUIBundle({
    url: "api/openapi.json",
    dom_id: "#reference",
    deepLinking: true,
    docExpansion: "list",
    filter: true,
    displayRequestDuration: true,
    showCommonExtensions: true,
    defaultModelsExpandDepth: 0,
    // The badge that asks a server of others whether the document is valid.
    validatorUrl: null,
  });
};
