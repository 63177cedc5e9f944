REVOKE UPDATE (created_at) ON erased_opt_outs FROM recado_tenant;
