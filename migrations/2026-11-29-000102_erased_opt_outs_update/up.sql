-- A later erasure of a person with the same identifier stores its time.
GRANT UPDATE (created_at) ON erased_opt_outs TO recado_tenant;
