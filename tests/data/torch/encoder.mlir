module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x32xf32>, %arg1: tensor<96x32xf32>, %arg2: tensor<96xf32>, %arg3: tensor<32x32xf32>, %arg4: tensor<32xf32>, %arg5: tensor<64x32xf32>, %arg6: tensor<64xf32>, %arg7: tensor<32x64xf32>, %arg8: tensor<32xf32>, %arg9: tensor<32xf32>, %arg10: tensor<32xf32>, %arg11: tensor<32xf32>, %arg12: tensor<32xf32>, %arg13: tensor<96x32xf32>, %arg14: tensor<96xf32>, %arg15: tensor<32x32xf32>, %arg16: tensor<32xf32>, %arg17: tensor<64x32xf32>, %arg18: tensor<64xf32>, %arg19: tensor<32x64xf32>, %arg20: tensor<32xf32>, %arg21: tensor<32xf32>, %arg22: tensor<32xf32>, %arg23: tensor<32xf32>, %arg24: tensor<32xf32>, %arg25: tensor<32xf32>, %arg26: tensor<32xf32>, %arg27: tensor<8x6xi32>) -> (tensor<8x6x64xf32> {jax.result_info = "result"}) {
    %0 = call @_take(%arg0, %arg27) : (tensor<64x32xf32>, tensor<8x6xi32>) -> tensor<8x6x32xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %cst_0 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %4 = stablehlo.divide %2, %3 : tensor<8x6x1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %5 = call @_var(%0, %c) : (tensor<8x6x32xf32>, tensor<i32>) -> tensor<8x6x1xf32>
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %7 = stablehlo.add %5, %6 : tensor<8x6x1xf32>
    %8 = stablehlo.rsqrt %7 : tensor<8x6x1xf32>
    %9 = stablehlo.broadcast_in_dim %4, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %10 = stablehlo.subtract %0, %9 : tensor<8x6x32xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<8x6x32xf32>
    %13 = stablehlo.broadcast_in_dim %arg9, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %15 = stablehlo.multiply %12, %14 : tensor<8x6x32xf32>
    %16 = stablehlo.broadcast_in_dim %arg10, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %18 = stablehlo.add %15, %17 : tensor<8x6x32xf32>
    %19 = stablehlo.transpose %18, dims = [1, 0, 2] : (tensor<8x6x32xf32>) -> tensor<6x8x32xf32>
    %20 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<96x32xf32>) -> tensor<32x96xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [1, 2] : (tensor<32x96xf32>) -> tensor<6x32x96xf32>
    %22 = stablehlo.dot_general %19, %21, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<6x8x32xf32>, tensor<6x32x96xf32>) -> tensor<6x8x96xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<96xf32>
    %24 = stablehlo.multiply %arg2, %23 : tensor<96xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [2] : (tensor<96xf32>) -> tensor<1x1x96xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2] : (tensor<1x1x96xf32>) -> tensor<6x8x96xf32>
    %27 = stablehlo.add %22, %26 : tensor<6x8x96xf32>
    %28 = stablehlo.reshape %27 : (tensor<6x8x96xf32>) -> tensor<6x8x3x32xf32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [1, 2, 3, 4] : (tensor<6x8x3x32xf32>) -> tensor<1x6x8x3x32xf32>
    %30 = stablehlo.transpose %29, dims = [3, 1, 2, 0, 4] : (tensor<1x6x8x3x32xf32>) -> tensor<3x6x8x1x32xf32>
    %31 = stablehlo.reshape %30 : (tensor<3x6x8x1x32xf32>) -> tensor<3x6x8x32xf32>
    %32 = stablehlo.slice %31 [0:1, 0:6, 0:8, 0:32] : (tensor<3x6x8x32xf32>) -> tensor<1x6x8x32xf32>
    %33 = stablehlo.reshape %32 : (tensor<1x6x8x32xf32>) -> tensor<6x8x32xf32>
    %34 = stablehlo.slice %31 [1:2, 0:6, 0:8, 0:32] : (tensor<3x6x8x32xf32>) -> tensor<1x6x8x32xf32>
    %35 = stablehlo.reshape %34 : (tensor<1x6x8x32xf32>) -> tensor<6x8x32xf32>
    %36 = stablehlo.slice %31 [2:3, 0:6, 0:8, 0:32] : (tensor<3x6x8x32xf32>) -> tensor<1x6x8x32xf32>
    %37 = stablehlo.reshape %36 : (tensor<1x6x8x32xf32>) -> tensor<6x8x32xf32>
    %38 = stablehlo.reshape %33 : (tensor<6x8x32xf32>) -> tensor<6x32x8xf32>
    %39 = stablehlo.transpose %38, dims = [1, 0, 2] : (tensor<6x32x8xf32>) -> tensor<32x6x8xf32>
    %40 = stablehlo.reshape %35 : (tensor<6x8x32xf32>) -> tensor<6x32x8xf32>
    %41 = stablehlo.transpose %40, dims = [1, 0, 2] : (tensor<6x32x8xf32>) -> tensor<32x6x8xf32>
    %42 = stablehlo.reshape %37 : (tensor<6x8x32xf32>) -> tensor<6x32x8xf32>
    %43 = stablehlo.transpose %42, dims = [1, 0, 2] : (tensor<6x32x8xf32>) -> tensor<32x6x8xf32>
    %44 = stablehlo.reshape %39 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %45 = stablehlo.reshape %41 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %46 = stablehlo.reshape %43 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %cst_3 = stablehlo.constant dense<0.594603539> : tensor<f32>
    %47 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<8x4x6x8xf32>
    %48 = stablehlo.multiply %44, %47 : tensor<8x4x6x8xf32>
    %49 = stablehlo.transpose %45, dims = [0, 1, 3, 2] : (tensor<8x4x6x8xf32>) -> tensor<8x4x8x6xf32>
    %cst_4 = stablehlo.constant dense<0.594603539> : tensor<f32>
    %50 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<8x4x8x6xf32>
    %51 = stablehlo.multiply %49, %50 : tensor<8x4x8x6xf32>
    %52 = stablehlo.reshape %48 : (tensor<8x4x6x8xf32>) -> tensor<32x6x8xf32>
    %53 = stablehlo.reshape %51 : (tensor<8x4x8x6xf32>) -> tensor<32x8x6xf32>
    %54 = stablehlo.dot_general %52, %53, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x6x8xf32>, tensor<32x8x6xf32>) -> tensor<32x6x6xf32>
    %55 = stablehlo.reshape %54 : (tensor<32x6x6xf32>) -> tensor<8x4x6x6xf32>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %56 = stablehlo.reduce(%55 init: %cst_5) applies stablehlo.maximum across dimensions = [3] : (tensor<8x4x6x6xf32>, tensor<f32>) -> tensor<8x4x6xf32>
    %cst_6 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %57 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<8x4x6xf32>
    %58 = stablehlo.maximum %57, %56 : tensor<8x4x6xf32>
    %59 = stablehlo.broadcast_in_dim %58, dims = [0, 1, 2] : (tensor<8x4x6xf32>) -> tensor<8x4x6x1xf32>
    %60 = stablehlo.broadcast_in_dim %59, dims = [0, 1, 2, 3] : (tensor<8x4x6x1xf32>) -> tensor<8x4x6x6xf32>
    %61 = stablehlo.subtract %55, %60 : tensor<8x4x6x6xf32>
    %62 = stablehlo.exponential %61 : tensor<8x4x6x6xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %63 = stablehlo.reduce(%62 init: %cst_7) applies stablehlo.add across dimensions = [3] : (tensor<8x4x6x6xf32>, tensor<f32>) -> tensor<8x4x6xf32>
    %64 = stablehlo.broadcast_in_dim %63, dims = [0, 1, 2] : (tensor<8x4x6xf32>) -> tensor<8x4x6x1xf32>
    %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1, 2, 3] : (tensor<8x4x6x1xf32>) -> tensor<8x4x6x6xf32>
    %66 = stablehlo.divide %62, %65 : tensor<8x4x6x6xf32>
    %cst_8 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %67 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<8x4x6x6xf32>
    %68 = stablehlo.compare EQ, %55, %67, FLOAT : (tensor<8x4x6x6xf32>, tensor<8x4x6x6xf32>) -> tensor<8x4x6x6xi1>
    %69 = stablehlo.not %68 : tensor<8x4x6x6xi1>
    %c_9 = stablehlo.constant dense<false> : tensor<i1>
    %70 = stablehlo.reduce(%69 init: %c_9) applies stablehlo.or across dimensions = [3] : (tensor<8x4x6x6xi1>, tensor<i1>) -> tensor<8x4x6xi1>
    %71 = stablehlo.broadcast_in_dim %70, dims = [0, 1, 2] : (tensor<8x4x6xi1>) -> tensor<8x4x6x1xi1>
    %72 = stablehlo.not %71 : tensor<8x4x6x1xi1>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %73 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<8x4x6x6xf32>
    %74 = call @_where_1(%72, %73, %66) : (tensor<8x4x6x1xi1>, tensor<8x4x6x6xf32>, tensor<8x4x6x6xf32>) -> tensor<8x4x6x6xf32>
    %75 = stablehlo.reshape %74 : (tensor<8x4x6x6xf32>) -> tensor<32x6x6xf32>
    %76 = stablehlo.reshape %46 : (tensor<8x4x6x8xf32>) -> tensor<32x6x8xf32>
    %77 = stablehlo.dot_general %75, %76, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x6x6xf32>, tensor<32x6x8xf32>) -> tensor<32x6x8xf32>
    %78 = stablehlo.reshape %77 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %79 = stablehlo.transpose %78, dims = [2, 0, 1, 3] : (tensor<8x4x6x8xf32>) -> tensor<6x8x4x8xf32>
    %80 = stablehlo.transpose %79, dims = [1, 2, 0, 3] : (tensor<6x8x4x8xf32>) -> tensor<8x4x6x8xf32>
    %81 = stablehlo.transpose %80, dims = [2, 0, 1, 3] : (tensor<8x4x6x8xf32>) -> tensor<6x8x4x8xf32>
    %82 = stablehlo.reshape %81 : (tensor<6x8x4x8xf32>) -> tensor<48x32xf32>
    %83 = stablehlo.transpose %arg3, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %cst_11 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %84 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %85 = stablehlo.multiply %arg4, %84 : tensor<32xf32>
    %86 = stablehlo.dot_general %82, %83, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x32xf32>, tensor<32x32xf32>) -> tensor<48x32xf32>
    %cst_12 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %87 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<48x32xf32>
    %88 = stablehlo.multiply %87, %86 : tensor<48x32xf32>
    %89 = stablehlo.broadcast_in_dim %85, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %90 = stablehlo.broadcast_in_dim %89, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<48x32xf32>
    %91 = stablehlo.add %90, %88 : tensor<48x32xf32>
    %92 = stablehlo.reshape %91 : (tensor<48x32xf32>) -> tensor<6x8x32xf32>
    %93 = stablehlo.transpose %92, dims = [1, 0, 2] : (tensor<6x8x32xf32>) -> tensor<8x6x32xf32>
    %cst_13 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %94 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<8x6x32xf32>
    %95 = stablehlo.multiply %93, %94 : tensor<8x6x32xf32>
    %96 = stablehlo.add %0, %95 : tensor<8x6x32xf32>
    %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %97 = stablehlo.reduce(%96 init: %cst_14) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %98 = stablehlo.broadcast_in_dim %97, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %cst_15 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %99 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %100 = stablehlo.divide %98, %99 : tensor<8x6x1xf32>
    %c_16 = stablehlo.constant dense<0> : tensor<i32>
    %101 = call @_var(%96, %c_16) : (tensor<8x6x32xf32>, tensor<i32>) -> tensor<8x6x1xf32>
    %cst_17 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %102 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %103 = stablehlo.add %101, %102 : tensor<8x6x1xf32>
    %104 = stablehlo.rsqrt %103 : tensor<8x6x1xf32>
    %105 = stablehlo.broadcast_in_dim %100, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %106 = stablehlo.subtract %96, %105 : tensor<8x6x32xf32>
    %107 = stablehlo.broadcast_in_dim %104, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %108 = stablehlo.multiply %106, %107 : tensor<8x6x32xf32>
    %109 = stablehlo.broadcast_in_dim %arg11, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %110 = stablehlo.broadcast_in_dim %109, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %111 = stablehlo.multiply %108, %110 : tensor<8x6x32xf32>
    %112 = stablehlo.broadcast_in_dim %arg12, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %113 = stablehlo.broadcast_in_dim %112, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %114 = stablehlo.add %111, %113 : tensor<8x6x32xf32>
    %115 = stablehlo.reshape %114 : (tensor<8x6x32xf32>) -> tensor<48x32xf32>
    %116 = stablehlo.transpose %arg5, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
    %cst_18 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %117 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %118 = stablehlo.multiply %arg6, %117 : tensor<64xf32>
    %119 = stablehlo.dot_general %115, %116, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x32xf32>, tensor<32x64xf32>) -> tensor<48x64xf32>
    %cst_19 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %120 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<48x64xf32>
    %121 = stablehlo.multiply %120, %119 : tensor<48x64xf32>
    %122 = stablehlo.broadcast_in_dim %118, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %123 = stablehlo.broadcast_in_dim %122, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<48x64xf32>
    %124 = stablehlo.add %123, %121 : tensor<48x64xf32>
    %125 = stablehlo.reshape %124 : (tensor<48x64xf32>) -> tensor<8x6x64xf32>
    %cst_20 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %126 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<8x6x64xf32>
    %127 = stablehlo.multiply %126, %125 : tensor<8x6x64xf32>
    %128 = stablehlo.negate %125 : tensor<8x6x64xf32>
    %cst_21 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %129 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<8x6x64xf32>
    %130 = stablehlo.multiply %128, %129 : tensor<8x6x64xf32>
    %131 = chlo.erfc %130 : tensor<8x6x64xf32> -> tensor<8x6x64xf32>
    %132 = stablehlo.multiply %127, %131 : tensor<8x6x64xf32>
    %133 = stablehlo.reshape %132 : (tensor<8x6x64xf32>) -> tensor<48x64xf32>
    %134 = stablehlo.transpose %arg7, dims = [1, 0] : (tensor<32x64xf32>) -> tensor<64x32xf32>
    %cst_22 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %135 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %136 = stablehlo.multiply %arg8, %135 : tensor<32xf32>
    %137 = stablehlo.dot_general %133, %134, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x64xf32>, tensor<64x32xf32>) -> tensor<48x32xf32>
    %cst_23 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %138 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<48x32xf32>
    %139 = stablehlo.multiply %138, %137 : tensor<48x32xf32>
    %140 = stablehlo.broadcast_in_dim %136, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %141 = stablehlo.broadcast_in_dim %140, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<48x32xf32>
    %142 = stablehlo.add %141, %139 : tensor<48x32xf32>
    %143 = stablehlo.reshape %142 : (tensor<48x32xf32>) -> tensor<8x6x32xf32>
    %cst_24 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %144 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<8x6x32xf32>
    %145 = stablehlo.multiply %143, %144 : tensor<8x6x32xf32>
    %146 = stablehlo.add %96, %145 : tensor<8x6x32xf32>
    %cst_25 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %147 = stablehlo.reduce(%146 init: %cst_25) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %148 = stablehlo.broadcast_in_dim %147, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %cst_26 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %149 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %150 = stablehlo.divide %148, %149 : tensor<8x6x1xf32>
    %c_27 = stablehlo.constant dense<0> : tensor<i32>
    %151 = call @_var(%146, %c_27) : (tensor<8x6x32xf32>, tensor<i32>) -> tensor<8x6x1xf32>
    %cst_28 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %152 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %153 = stablehlo.add %151, %152 : tensor<8x6x1xf32>
    %154 = stablehlo.rsqrt %153 : tensor<8x6x1xf32>
    %155 = stablehlo.broadcast_in_dim %150, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %156 = stablehlo.subtract %146, %155 : tensor<8x6x32xf32>
    %157 = stablehlo.broadcast_in_dim %154, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %158 = stablehlo.multiply %156, %157 : tensor<8x6x32xf32>
    %159 = stablehlo.broadcast_in_dim %arg21, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %160 = stablehlo.broadcast_in_dim %159, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %161 = stablehlo.multiply %158, %160 : tensor<8x6x32xf32>
    %162 = stablehlo.broadcast_in_dim %arg22, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %163 = stablehlo.broadcast_in_dim %162, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %164 = stablehlo.add %161, %163 : tensor<8x6x32xf32>
    %165 = stablehlo.transpose %164, dims = [1, 0, 2] : (tensor<8x6x32xf32>) -> tensor<6x8x32xf32>
    %166 = stablehlo.transpose %arg13, dims = [1, 0] : (tensor<96x32xf32>) -> tensor<32x96xf32>
    %167 = stablehlo.broadcast_in_dim %166, dims = [1, 2] : (tensor<32x96xf32>) -> tensor<6x32x96xf32>
    %168 = stablehlo.dot_general %165, %167, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<6x8x32xf32>, tensor<6x32x96xf32>) -> tensor<6x8x96xf32>
    %cst_29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %169 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<96xf32>
    %170 = stablehlo.multiply %arg14, %169 : tensor<96xf32>
    %171 = stablehlo.broadcast_in_dim %170, dims = [2] : (tensor<96xf32>) -> tensor<1x1x96xf32>
    %172 = stablehlo.broadcast_in_dim %171, dims = [0, 1, 2] : (tensor<1x1x96xf32>) -> tensor<6x8x96xf32>
    %173 = stablehlo.add %168, %172 : tensor<6x8x96xf32>
    %174 = stablehlo.reshape %173 : (tensor<6x8x96xf32>) -> tensor<6x8x3x32xf32>
    %175 = stablehlo.broadcast_in_dim %174, dims = [1, 2, 3, 4] : (tensor<6x8x3x32xf32>) -> tensor<1x6x8x3x32xf32>
    %176 = stablehlo.transpose %175, dims = [3, 1, 2, 0, 4] : (tensor<1x6x8x3x32xf32>) -> tensor<3x6x8x1x32xf32>
    %177 = stablehlo.reshape %176 : (tensor<3x6x8x1x32xf32>) -> tensor<3x6x8x32xf32>
    %178 = stablehlo.slice %177 [0:1, 0:6, 0:8, 0:32] : (tensor<3x6x8x32xf32>) -> tensor<1x6x8x32xf32>
    %179 = stablehlo.reshape %178 : (tensor<1x6x8x32xf32>) -> tensor<6x8x32xf32>
    %180 = stablehlo.slice %177 [1:2, 0:6, 0:8, 0:32] : (tensor<3x6x8x32xf32>) -> tensor<1x6x8x32xf32>
    %181 = stablehlo.reshape %180 : (tensor<1x6x8x32xf32>) -> tensor<6x8x32xf32>
    %182 = stablehlo.slice %177 [2:3, 0:6, 0:8, 0:32] : (tensor<3x6x8x32xf32>) -> tensor<1x6x8x32xf32>
    %183 = stablehlo.reshape %182 : (tensor<1x6x8x32xf32>) -> tensor<6x8x32xf32>
    %184 = stablehlo.reshape %179 : (tensor<6x8x32xf32>) -> tensor<6x32x8xf32>
    %185 = stablehlo.transpose %184, dims = [1, 0, 2] : (tensor<6x32x8xf32>) -> tensor<32x6x8xf32>
    %186 = stablehlo.reshape %181 : (tensor<6x8x32xf32>) -> tensor<6x32x8xf32>
    %187 = stablehlo.transpose %186, dims = [1, 0, 2] : (tensor<6x32x8xf32>) -> tensor<32x6x8xf32>
    %188 = stablehlo.reshape %183 : (tensor<6x8x32xf32>) -> tensor<6x32x8xf32>
    %189 = stablehlo.transpose %188, dims = [1, 0, 2] : (tensor<6x32x8xf32>) -> tensor<32x6x8xf32>
    %190 = stablehlo.reshape %185 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %191 = stablehlo.reshape %187 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %192 = stablehlo.reshape %189 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %cst_30 = stablehlo.constant dense<0.594603539> : tensor<f32>
    %193 = stablehlo.broadcast_in_dim %cst_30, dims = [] : (tensor<f32>) -> tensor<8x4x6x8xf32>
    %194 = stablehlo.multiply %190, %193 : tensor<8x4x6x8xf32>
    %195 = stablehlo.transpose %191, dims = [0, 1, 3, 2] : (tensor<8x4x6x8xf32>) -> tensor<8x4x8x6xf32>
    %cst_31 = stablehlo.constant dense<0.594603539> : tensor<f32>
    %196 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<8x4x8x6xf32>
    %197 = stablehlo.multiply %195, %196 : tensor<8x4x8x6xf32>
    %198 = stablehlo.reshape %194 : (tensor<8x4x6x8xf32>) -> tensor<32x6x8xf32>
    %199 = stablehlo.reshape %197 : (tensor<8x4x8x6xf32>) -> tensor<32x8x6xf32>
    %200 = stablehlo.dot_general %198, %199, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x6x8xf32>, tensor<32x8x6xf32>) -> tensor<32x6x6xf32>
    %201 = stablehlo.reshape %200 : (tensor<32x6x6xf32>) -> tensor<8x4x6x6xf32>
    %cst_32 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %202 = stablehlo.reduce(%201 init: %cst_32) applies stablehlo.maximum across dimensions = [3] : (tensor<8x4x6x6xf32>, tensor<f32>) -> tensor<8x4x6xf32>
    %cst_33 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %203 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<8x4x6xf32>
    %204 = stablehlo.maximum %203, %202 : tensor<8x4x6xf32>
    %205 = stablehlo.broadcast_in_dim %204, dims = [0, 1, 2] : (tensor<8x4x6xf32>) -> tensor<8x4x6x1xf32>
    %206 = stablehlo.broadcast_in_dim %205, dims = [0, 1, 2, 3] : (tensor<8x4x6x1xf32>) -> tensor<8x4x6x6xf32>
    %207 = stablehlo.subtract %201, %206 : tensor<8x4x6x6xf32>
    %208 = stablehlo.exponential %207 : tensor<8x4x6x6xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %209 = stablehlo.reduce(%208 init: %cst_34) applies stablehlo.add across dimensions = [3] : (tensor<8x4x6x6xf32>, tensor<f32>) -> tensor<8x4x6xf32>
    %210 = stablehlo.broadcast_in_dim %209, dims = [0, 1, 2] : (tensor<8x4x6xf32>) -> tensor<8x4x6x1xf32>
    %211 = stablehlo.broadcast_in_dim %210, dims = [0, 1, 2, 3] : (tensor<8x4x6x1xf32>) -> tensor<8x4x6x6xf32>
    %212 = stablehlo.divide %208, %211 : tensor<8x4x6x6xf32>
    %cst_35 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %213 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<8x4x6x6xf32>
    %214 = stablehlo.compare EQ, %201, %213, FLOAT : (tensor<8x4x6x6xf32>, tensor<8x4x6x6xf32>) -> tensor<8x4x6x6xi1>
    %215 = stablehlo.not %214 : tensor<8x4x6x6xi1>
    %c_36 = stablehlo.constant dense<false> : tensor<i1>
    %216 = stablehlo.reduce(%215 init: %c_36) applies stablehlo.or across dimensions = [3] : (tensor<8x4x6x6xi1>, tensor<i1>) -> tensor<8x4x6xi1>
    %217 = stablehlo.broadcast_in_dim %216, dims = [0, 1, 2] : (tensor<8x4x6xi1>) -> tensor<8x4x6x1xi1>
    %218 = stablehlo.not %217 : tensor<8x4x6x1xi1>
    %cst_37 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %219 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<8x4x6x6xf32>
    %220 = call @_where_1(%218, %219, %212) : (tensor<8x4x6x1xi1>, tensor<8x4x6x6xf32>, tensor<8x4x6x6xf32>) -> tensor<8x4x6x6xf32>
    %221 = stablehlo.reshape %220 : (tensor<8x4x6x6xf32>) -> tensor<32x6x6xf32>
    %222 = stablehlo.reshape %192 : (tensor<8x4x6x8xf32>) -> tensor<32x6x8xf32>
    %223 = stablehlo.dot_general %221, %222, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x6x6xf32>, tensor<32x6x8xf32>) -> tensor<32x6x8xf32>
    %224 = stablehlo.reshape %223 : (tensor<32x6x8xf32>) -> tensor<8x4x6x8xf32>
    %225 = stablehlo.transpose %224, dims = [2, 0, 1, 3] : (tensor<8x4x6x8xf32>) -> tensor<6x8x4x8xf32>
    %226 = stablehlo.transpose %225, dims = [1, 2, 0, 3] : (tensor<6x8x4x8xf32>) -> tensor<8x4x6x8xf32>
    %227 = stablehlo.transpose %226, dims = [2, 0, 1, 3] : (tensor<8x4x6x8xf32>) -> tensor<6x8x4x8xf32>
    %228 = stablehlo.reshape %227 : (tensor<6x8x4x8xf32>) -> tensor<48x32xf32>
    %229 = stablehlo.transpose %arg15, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %cst_38 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %230 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %231 = stablehlo.multiply %arg16, %230 : tensor<32xf32>
    %232 = stablehlo.dot_general %228, %229, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x32xf32>, tensor<32x32xf32>) -> tensor<48x32xf32>
    %cst_39 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %233 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<48x32xf32>
    %234 = stablehlo.multiply %233, %232 : tensor<48x32xf32>
    %235 = stablehlo.broadcast_in_dim %231, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %236 = stablehlo.broadcast_in_dim %235, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<48x32xf32>
    %237 = stablehlo.add %236, %234 : tensor<48x32xf32>
    %238 = stablehlo.reshape %237 : (tensor<48x32xf32>) -> tensor<6x8x32xf32>
    %239 = stablehlo.transpose %238, dims = [1, 0, 2] : (tensor<6x8x32xf32>) -> tensor<8x6x32xf32>
    %cst_40 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %240 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<8x6x32xf32>
    %241 = stablehlo.multiply %239, %240 : tensor<8x6x32xf32>
    %242 = stablehlo.add %146, %241 : tensor<8x6x32xf32>
    %cst_41 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %243 = stablehlo.reduce(%242 init: %cst_41) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %244 = stablehlo.broadcast_in_dim %243, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %cst_42 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %245 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %246 = stablehlo.divide %244, %245 : tensor<8x6x1xf32>
    %c_43 = stablehlo.constant dense<0> : tensor<i32>
    %247 = call @_var(%242, %c_43) : (tensor<8x6x32xf32>, tensor<i32>) -> tensor<8x6x1xf32>
    %cst_44 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %248 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %249 = stablehlo.add %247, %248 : tensor<8x6x1xf32>
    %250 = stablehlo.rsqrt %249 : tensor<8x6x1xf32>
    %251 = stablehlo.broadcast_in_dim %246, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %252 = stablehlo.subtract %242, %251 : tensor<8x6x32xf32>
    %253 = stablehlo.broadcast_in_dim %250, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %254 = stablehlo.multiply %252, %253 : tensor<8x6x32xf32>
    %255 = stablehlo.broadcast_in_dim %arg23, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %256 = stablehlo.broadcast_in_dim %255, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %257 = stablehlo.multiply %254, %256 : tensor<8x6x32xf32>
    %258 = stablehlo.broadcast_in_dim %arg24, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %259 = stablehlo.broadcast_in_dim %258, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %260 = stablehlo.add %257, %259 : tensor<8x6x32xf32>
    %261 = stablehlo.reshape %260 : (tensor<8x6x32xf32>) -> tensor<48x32xf32>
    %262 = stablehlo.transpose %arg17, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
    %cst_45 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %263 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %264 = stablehlo.multiply %arg18, %263 : tensor<64xf32>
    %265 = stablehlo.dot_general %261, %262, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x32xf32>, tensor<32x64xf32>) -> tensor<48x64xf32>
    %cst_46 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %266 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<48x64xf32>
    %267 = stablehlo.multiply %266, %265 : tensor<48x64xf32>
    %268 = stablehlo.broadcast_in_dim %264, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %269 = stablehlo.broadcast_in_dim %268, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<48x64xf32>
    %270 = stablehlo.add %269, %267 : tensor<48x64xf32>
    %271 = stablehlo.reshape %270 : (tensor<48x64xf32>) -> tensor<8x6x64xf32>
    %cst_47 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %272 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<8x6x64xf32>
    %273 = stablehlo.multiply %272, %271 : tensor<8x6x64xf32>
    %274 = stablehlo.negate %271 : tensor<8x6x64xf32>
    %cst_48 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %275 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<8x6x64xf32>
    %276 = stablehlo.multiply %274, %275 : tensor<8x6x64xf32>
    %277 = chlo.erfc %276 : tensor<8x6x64xf32> -> tensor<8x6x64xf32>
    %278 = stablehlo.multiply %273, %277 : tensor<8x6x64xf32>
    %279 = stablehlo.reshape %278 : (tensor<8x6x64xf32>) -> tensor<48x64xf32>
    %280 = stablehlo.transpose %arg19, dims = [1, 0] : (tensor<32x64xf32>) -> tensor<64x32xf32>
    %cst_49 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %281 = stablehlo.broadcast_in_dim %cst_49, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %282 = stablehlo.multiply %arg20, %281 : tensor<32xf32>
    %283 = stablehlo.dot_general %279, %280, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x64xf32>, tensor<64x32xf32>) -> tensor<48x32xf32>
    %cst_50 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %284 = stablehlo.broadcast_in_dim %cst_50, dims = [] : (tensor<f32>) -> tensor<48x32xf32>
    %285 = stablehlo.multiply %284, %283 : tensor<48x32xf32>
    %286 = stablehlo.broadcast_in_dim %282, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %287 = stablehlo.broadcast_in_dim %286, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<48x32xf32>
    %288 = stablehlo.add %287, %285 : tensor<48x32xf32>
    %289 = stablehlo.reshape %288 : (tensor<48x32xf32>) -> tensor<8x6x32xf32>
    %cst_51 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %290 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<8x6x32xf32>
    %291 = stablehlo.multiply %289, %290 : tensor<8x6x32xf32>
    %292 = stablehlo.add %242, %291 : tensor<8x6x32xf32>
    %cst_52 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %293 = stablehlo.reduce(%292 init: %cst_52) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %294 = stablehlo.broadcast_in_dim %293, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %cst_53 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %295 = stablehlo.broadcast_in_dim %cst_53, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %296 = stablehlo.divide %294, %295 : tensor<8x6x1xf32>
    %c_54 = stablehlo.constant dense<0> : tensor<i32>
    %297 = call @_var(%292, %c_54) : (tensor<8x6x32xf32>, tensor<i32>) -> tensor<8x6x1xf32>
    %cst_55 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %298 = stablehlo.broadcast_in_dim %cst_55, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %299 = stablehlo.add %297, %298 : tensor<8x6x1xf32>
    %300 = stablehlo.rsqrt %299 : tensor<8x6x1xf32>
    %301 = stablehlo.broadcast_in_dim %296, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %302 = stablehlo.subtract %292, %301 : tensor<8x6x32xf32>
    %303 = stablehlo.broadcast_in_dim %300, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %304 = stablehlo.multiply %302, %303 : tensor<8x6x32xf32>
    %305 = stablehlo.broadcast_in_dim %arg25, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %306 = stablehlo.broadcast_in_dim %305, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %307 = stablehlo.multiply %304, %306 : tensor<8x6x32xf32>
    %308 = stablehlo.broadcast_in_dim %arg26, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %309 = stablehlo.broadcast_in_dim %308, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<8x6x32xf32>
    %310 = stablehlo.add %307, %309 : tensor<8x6x32xf32>
    %311 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
    %312 = stablehlo.reshape %310 : (tensor<8x6x32xf32>) -> tensor<48x32xf32>
    %313 = stablehlo.dot_general %312, %311, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<48x32xf32>, tensor<32x64xf32>) -> tensor<48x64xf32>
    %314 = stablehlo.reshape %313 : (tensor<48x64xf32>) -> tensor<8x6x64xf32>
    return %314 : tensor<8x6x64xf32>
  }
  func.func private @_take(%arg0: tensor<64x32xf32>, %arg1: tensor<8x6xi32>) -> tensor<8x6x32xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<8x6xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<8x6xi32>, tensor<8x6xi32>) -> tensor<8x6xi1>
    %c_0 = stablehlo.constant dense<64> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<8x6xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<8x6xi32>
    %4 = call @_where(%1, %3, %arg1) : (tensor<8x6xi1>, tensor<8x6xi32>, tensor<8x6xi32>) -> tensor<8x6xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<8x6xi32>) -> tensor<8x6x1xi32>
    %c_1 = stablehlo.constant dense<63> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<8x6x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<8x6x1xi32>, tensor<8x6x1xi32>) -> tensor<8x6x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [2] : (tensor<1xi32>) -> tensor<1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x1xi32>) -> tensor<8x6x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<8x6x1xi32>, tensor<8x6x1xi32>) -> tensor<8x6x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<8x6x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [2] : (tensor<8x6x1xi1>, tensor<i1>) -> tensor<8x6xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 32>}> : (tensor<64x32xf32>, tensor<8x6x1xi32>) -> tensor<8x6x32xf32>
    %14 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (tensor<8x6xi1>) -> tensor<8x6x32xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x6x32xf32>
    %16 = stablehlo.select %14, %13, %15 : tensor<8x6x32xi1>, tensor<8x6x32xf32>
    return %16 : tensor<8x6x32xf32>
  }
  func.func private @_where(%arg0: tensor<8x6xi1>, %arg1: tensor<8x6xi32>, %arg2: tensor<8x6xi32>) -> tensor<8x6xi32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<8x6xi1>, tensor<8x6xi32>
    return %0 : tensor<8x6xi32>
  }
  func.func private @_var(%arg0: tensor<8x6x32xf32>, %arg1: tensor<i32>) -> tensor<8x6x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %cst_0 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<8x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<8x6x1xf32>) -> tensor<8x6x32xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<8x6x32xf32>
    %6 = chlo.square %5 : tensor<8x6x32xf32> -> tensor<8x6x32xf32>
    %7 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %8 = stablehlo.subtract %cst_1, %7 : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<8x6x32xf32>, tensor<f32>) -> tensor<8x6xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x1xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<8x6x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.compare GT, %8, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = call @_where_0(%13, %12, %cst_4) : (tensor<i1>, tensor<8x6x1xf32>, tensor<f32>) -> tensor<8x6x1xf32>
    return %14 : tensor<8x6x1xf32>
  }
  func.func private @_where_0(%arg0: tensor<i1>, %arg1: tensor<8x6x1xf32>, %arg2: tensor<f32>) -> tensor<8x6x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<8x6x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<8x6x1xf32>
    return %2 : tensor<8x6x1xf32>
  }
  func.func private @_where_1(%arg0: tensor<8x4x6x1xi1>, %arg1: tensor<8x4x6x6xf32>, %arg2: tensor<8x4x6x6xf32>) -> tensor<8x4x6x6xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1, 2, 3] : (tensor<8x4x6x1xi1>) -> tensor<8x4x6x6xi1>
    %1 = stablehlo.select %0, %arg1, %arg2 : tensor<8x4x6x6xi1>, tensor<8x4x6x6xf32>
    return %1 : tensor<8x4x6x6xf32>
  }
}
